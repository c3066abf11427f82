// Keeps the last lines of the log for the control plane, besides writing them to standard error. Lines of
// executor processes go to standard error only. Thread-safe.
#pragma once

#include <spdlog/common.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/telemetry/recent_list.h"

namespace xpud::telemetry {

enum class LogLevel : int { kTrace, kDebug, kInfo, kWarn, kError };

// "trace", "debug", "info", "warn", "error".
std::string_view NameOf(LogLevel level);
std::optional<LogLevel> LevelOf(std::string_view name);

struct LogLine {
  LogLevel level;
  std::string text;  // printable
  int64_t unix_ms;
  uint64_t sequence = 0;
};
using LogLines = RecentList<LogLine>;

inline constexpr size_t kMaxLogLines = 1000, kMaxLineText = 1024;

// Returns a sink that adds a logger's lines to `lines`.
spdlog::sink_ptr KeepLines(std::shared_ptr<LogLines> lines);

}  // namespace xpud::telemetry
