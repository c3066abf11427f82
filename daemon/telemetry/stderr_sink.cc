#include "daemon/telemetry/stderr_sink.h"

#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "proto/base/line_writer.h"

namespace xpud::telemetry {
namespace {

class Sink final : public spdlog::sinks::base_sink<std::mutex> {
 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (dropped_ != 0) {
      const std::string text =
          absl::StrCat("log_lines_dropped count=", dropped_, " reason=\"nobody read standard error\"");
      if (Write({message.time, {}, message.logger_name, spdlog::level::warn, text})) dropped_ = 0;
    }
    if (dropped_ != 0 || !Write(message)) ++dropped_;
  }
  void flush_() override {}

  bool Write(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    return writer_.Write({line.data(), line.size()});
  }

  LineWriter writer_{STDERR_FILENO};
  uint64_t dropped_ = 0;
};

}  // namespace

spdlog::sink_ptr StandardErrorSink() { return std::make_shared<Sink>(); }

}  // namespace xpud::telemetry
