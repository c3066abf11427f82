// The daemon's metrics: one table whose rows read a snapshot of the control plane. To add a metric, add a
// row. Thread-safe.
#pragma once

#include <string>

#include "daemon/telemetry/exposition.h"
#include "proto/control/xpud.pb.h"

namespace xpud::telemetry {

// Writes every family, with its series if it has any. Values that cannot be measured have no series.
std::string MetricsText(const v1::GetStatusResponse& snapshot, Format format);

}  // namespace xpud::telemetry
