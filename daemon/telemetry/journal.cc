#include "daemon/telemetry/journal.h"

#include <spdlog/pattern_formatter.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"

namespace xpud::telemetry {
namespace {

// The priorities of syslog(3).
char PriorityOf(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::critical:
      return '2';
    case spdlog::level::err:
      return '3';
    case spdlog::level::warn:
      return '4';
    case spdlog::level::info:
      return '6';
    default:
      return '7';
  }
}

class PriorityFlag final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm& /*time*/,
              spdlog::memory_buf_t& out) override {
    out.push_back(PriorityOf(message.level));
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<PriorityFlag>(); }
};

// $JOURNAL_STREAM identifies the file that a service was given. A child inherits the variable even if it
// writes elsewhere, so compare the file.
bool StandardErrorIsJournal() {
  const char* const stream = std::getenv("JOURNAL_STREAM");
  struct stat info;
  return stream != nullptr && fstat(STDERR_FILENO, &info) == 0 &&
         absl::StrCat(info.st_dev, ":", info.st_ino) == stream;
}

}  // namespace

std::unique_ptr<spdlog::formatter> LogFormatter() {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<PriorityFlag>('P');
  formatter->set_pattern(StandardErrorIsJournal() ? "<%P>%l %v" : "%Y-%m-%dT%H:%M:%S.%e %l %v");
  return formatter;
}

}  // namespace xpud::telemetry
