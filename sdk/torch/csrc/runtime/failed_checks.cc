#include "sdk/torch/csrc/runtime/failed_checks.h"

#include <mutex>
#include <vector>

#include "proto/ops/invalid_index.h"

namespace xpud::shim {
namespace {

// The messages of checks, by number. A program has few; those beyond the limit share one.
class Messages {
 public:
  static Messages& Get() {
    static auto* const messages = new Messages;  // errors are also reported while the process ends
    return *messages;
  }
  int64_t NumberOf(std::string_view message) {
    const std::scoped_lock lock(mutex_);
    for (size_t i = 0; i < messages_.size(); ++i)
      if (messages_[i] == message) return static_cast<int64_t>(i);
    if (messages_.size() == kMost) return 0;
    messages_.emplace_back(message);
    return static_cast<int64_t>(messages_.size() - 1);
  }
  std::string Of(int64_t number) {
    const std::scoped_lock lock(mutex_);
    const auto at = static_cast<size_t>(number);
    return at < messages_.size() ? messages_[at] : messages_[0];
  }

 private:
  static constexpr size_t kMost = 1024;

  std::mutex mutex_;
  std::vector<std::string> messages_ = {"An assertion on the device failed"};
};

}  // namespace

int64_t NumberOfCheck(std::string_view message) { return Messages::Get().NumberOf(message); }

std::optional<std::string> MessageOfFailedCheck(std::string_view error) {
  const std::optional<int64_t> number = ops::FailedCheckOf(error);
  return number.has_value() ? std::optional(Messages::Get().Of(*number)) : std::nullopt;
}

}  // namespace xpud::shim
