// The append functions of the command list table.
#pragma once

#include <level_zero/ze_ddi.h>

#include "drivers/frontend/table.h"

namespace xpud::drivers {

void PutAppends(const TableWriter& put, ze_command_list_dditable_t& table);

}  // namespace xpud::drivers
