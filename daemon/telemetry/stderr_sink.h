// Writes log lines to standard error without blocking: a service must not stop because the reader of its log,
// such as a pipe that nobody reads, has stopped. Lines for which there is no room are dropped, and the next
// line that has room says how many. Thread-safe.
#pragma once

#include <spdlog/common.h>

namespace xpud::telemetry {

spdlog::sink_ptr StandardErrorSink();

}  // namespace xpud::telemetry
