// The metrics that the daemon has: one table, whose rows read a snapshot of the control plane. To add one,
// add a row. Any thread.
#pragma once

#include <string>

#include "daemon/telemetry/exposition.h"
#include "proto/control/xpud.pb.h"

namespace xpud::telemetry {

// Every family is announced, with series or without: what cannot be measured has none.
std::string MetricsText(const v1::GetStatusResponse& snapshot, Format format);

}  // namespace xpud::telemetry
