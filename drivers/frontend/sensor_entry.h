// The sysman entries that read a device's Sensors. They return UNSUPPORTED_FEATURE if a device has none.
#pragma once

#include <level_zero/zes_ddi.h>

#include "drivers/frontend/table.h"

namespace xpud::drivers {

void PutSensors(const TableWriter& put, zes_device_dditable_t& table);
void PutSensors(const TableWriter& put, zes_memory_dditable_t& table);
void PutSensors(const TableWriter& put, zes_power_dditable_t& table);
void PutSensors(const TableWriter& put, zes_temperature_dditable_t& table);
void PutSensors(const TableWriter& put, zes_frequency_dditable_t& table);

}  // namespace xpud::drivers
