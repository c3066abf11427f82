// The log's last lines, for operators who ask the control plane: what a daemon writes to standard error it
// keeps here, too. Executors' own lines go to standard error alone. Any thread.
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

// Keeps in `lines` what a logger is told.
spdlog::sink_ptr KeepLines(std::shared_ptr<LogLines> lines);

}  // namespace xpud::telemetry
