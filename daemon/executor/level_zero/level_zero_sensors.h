// Reads sensors through Level Zero's sysman.
#pragma once

#include <level_zero/ze_api.h>

#include "daemon/executor/api/sensors.h"

namespace xpud::executor {

// Any thread; also of a device that is busy, or lost. `says_why`: whether its driver knows what holds a
// frequency down, which that of CPUs does not, and Level Zero has no word for.
SensorReadings ReadLevelZeroSensors(ze_device_handle_t device, bool says_why);

}  // namespace xpud::executor
