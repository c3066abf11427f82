#include "daemon/telemetry/log_ring.h"

#include <spdlog/sinks/sink.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "proto/base/text.h"

namespace xpud::telemetry {
namespace {

constexpr std::string_view kNames[] = {"trace", "debug", "info", "warn", "error"};

LogLevel LevelFrom(spdlog::level::level_enum level) {
  return static_cast<LogLevel>(std::min<int>(level, static_cast<int>(LogLevel::kError)));
}

class LinesSink final : public spdlog::sinks::sink {
 public:
  explicit LinesSink(std::shared_ptr<LogLines> lines) : lines_(std::move(lines)) {}

  void log(const spdlog::details::log_msg& message) override {
    const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(message.time.time_since_epoch());
    const std::string_view text(message.payload.data(), message.payload.size());
    lines_->Add({LevelFrom(message.level), PrintableText(text, kMaxLineText), time.count()});
  }
  void flush() override {}
  void set_pattern(const std::string& /*pattern*/) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter> /*formatter*/) override {}

 private:
  const std::shared_ptr<LogLines> lines_;
};

}  // namespace

std::string_view NameOf(LogLevel level) { return kNames[static_cast<size_t>(level)]; }

std::optional<LogLevel> LevelOf(std::string_view name) {
  const auto* const found = std::ranges::find(kNames, name);
  if (found == std::end(kNames)) return std::nullopt;
  return static_cast<LogLevel>(found - std::begin(kNames));
}

spdlog::sink_ptr KeepLines(std::shared_ptr<LogLines> lines) {
  return std::make_shared<LinesSink>(std::move(lines));
}

}  // namespace xpud::telemetry
