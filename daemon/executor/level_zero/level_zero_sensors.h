// Reads sensors through Level Zero's sysman.
#pragma once

#include <level_zero/ze_api.h>

#include "daemon/executor/api/sensors.h"

namespace xpud::executor {

// Thread-safe; also works while the device is busy or lost. `says_why`: whether the driver reports throttle
// reasons. The driver of CPUs does not, and Level Zero has no way to ask.
SensorReadings ReadLevelZeroSensors(ze_device_handle_t device, bool says_why);

}  // namespace xpud::executor
