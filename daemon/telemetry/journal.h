// How the log's lines look. Any thread.
#pragma once

#include <spdlog/formatter.h>

#include <memory>

namespace xpud::telemetry {

// With time and level; or, where standard error is journald's, which has the time, with the priority before
// each line (`<4>warning ...`) that journald takes from it.
std::unique_ptr<spdlog::formatter> LogFormatter();

}  // namespace xpud::telemetry
