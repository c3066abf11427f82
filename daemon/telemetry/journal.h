// The format of log lines. Thread-safe.
#pragma once

#include <spdlog/formatter.h>

#include <memory>

namespace xpud::telemetry {

// Lines have a time and a level. If standard error is journald's, which adds the time, lines begin with a
// priority that journald understands instead
// (`<4>warning ...`).
std::unique_ptr<spdlog::formatter> LogFormatter();

}  // namespace xpud::telemetry
