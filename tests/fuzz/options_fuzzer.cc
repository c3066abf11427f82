// Text configuration: the daemon's command line, and a client's visible devices. The first byte selects;
// arguments are separated by NUL.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "daemon/config/configuration.h"
#include "proto/base/check.h"
#include "sdk/client/visible_devices.h"
#include "tests/fuzz/bytes.h"

namespace xpud::fuzz {
namespace {

// Each argument is in memory of its own, so that ASan reports reads beyond it, or beyond the last argument.
class Arguments {
 public:
  explicit Arguments(std::string_view text) {
    while (!text.empty()) {
      const size_t length = std::min(text.find('\0'), text.size());
      texts_.push_back(std::make_unique<char[]>(length + 1));
      std::copy_n(text.begin(), length, texts_.back().get());
      text.remove_prefix(std::min(length + 1, text.size()));
    }
    raw_ = std::make_unique<char*[]>(texts_.size());
    for (size_t i = 0; i < texts_.size(); ++i) raw_[i] = texts_[i].get();
  }
  std::span<char* const> raw() const { return {raw_.get(), texts_.size()}; }
  bool Has(std::string_view text) const {
    return std::any_of(texts_.begin(), texts_.end(), [&](const auto& t) { return t.get() == text; });
  }

 private:
  std::vector<std::unique_ptr<char[]>> texts_;
  std::unique_ptr<char*[]> raw_;
};

// Returns the octal number in `text`, or 0 if it has more than three digits after leading zeros.
unsigned ModeOf(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size()));
  unsigned mode = 0;
  for (const char digit : text) mode = mode * 8 + static_cast<unsigned>(digit - '0');
  return text.size() <= 3 ? mode : 0;
}

void ParseDaemon(std::string_view text) {
  const Arguments arguments(text);
  const auto line = config::CommandLine::Parse(arguments.raw());
  if (!line.ok()) {
    XPUD_CHECK(absl::IsInvalidArgument(line.status()) && !line.status().message().empty());
    return;
  }
  const config::Options* const options = &line->options();
  const config::Options defaults;
  XPUD_CHECK(options->socket_mode >= 1 && options->socket_mode <= 0777);
  XPUD_CHECK(options->command_limit_ms >= 0 && options->exit_when_idle_seconds.value_or(0) >= 0);
  XPUD_CHECK(options->ready_fd >= 0 || options->ready_fd == defaults.ready_fd);
  const auto raw = arguments.raw();
  bool mode_given = options->socket_mode == defaults.socket_mode;
  for (const char* argument : raw) mode_given |= ModeOf(argument) == options->socket_mode;
  XPUD_CHECK(mode_given);  // a mode that was not given
  XPUD_CHECK(options->confine == defaults.confine || arguments.Has("log") || arguments.Has("off"));
  XPUD_CHECK(!options->test_kernels || arguments.Has("--test-kernels"));
}

void ParseVisible(std::string_view text) {
  constexpr uint32_t kCount = 5;
  const std::vector<uint32_t> devices = client::VisibleDevices(std::string(text).c_str(), kCount);
  XPUD_CHECK(devices.size() <= kCount);
  for (const uint32_t device : devices)
    XPUD_CHECK(device < kCount && std::count(devices.begin(), devices.end(), device) == 1);
}

}  // namespace
}  // namespace xpud::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace xpud::fuzz;
  Bytes input(data, size);
  if (input.Take<uint8_t>() % 2 == 0) {
    ParseDaemon(input.text());
  } else {
    ParseVisible(input.text());
  }
  return 0;
}
