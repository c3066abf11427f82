// top: the rates between two samples, again and again. On a terminal the picture stays in place; elsewhere
// one follows another. Ends with Ctrl-C, after -n samples, or with --once.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "absl/strings/numbers.h"
#include "tools/xpuctl/command.h"
#include "tools/xpuctl/control_client.h"
#include "tools/xpuctl/rates.h"
#include "tools/xpuctl/views.h"

namespace xpud::xpuctl {
namespace {

volatile sig_atomic_t interrupted = 0;

struct TopOptions {
  double interval = 1;  // seconds
  int64_t count = -1;   // samples; negative: until Ctrl-C
};

// Sets the option `name`; false when there is none, or `value` is not for it.
bool Set(std::string_view name, const std::string& value, TopOptions& options) {
  if (name == "--interval") return absl::SimpleAtod(value, &options.interval) && options.interval >= 0.05;
  if (name == "-n") return absl::SimpleAtoi(value, &options.count) && options.count >= 1;
  return false;
}

// False when an argument is not understood.
bool Parse(const std::vector<std::string>& arguments, TopOptions& options) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--once") {
      options.count = 1;
    } else if (i + 1 == arguments.size() || !Set(arguments[i], arguments[i + 1], options)) {
      return false;
    } else {
      ++i;
    }
  }
  return true;
}

// Sleeps, unless Ctrl-C cuts it short.
void Pause(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!interrupted && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

int Loop(ControlClient& client, const TopOptions& options, Output output) {
  const bool in_place = output == Output::kTable && options.count != 1 && isatty(STDOUT_FILENO);
  auto earlier = client.GetStatus();
  if (!earlier.ok()) return Report(earlier.status());
  for (int64_t shown = 0; options.count < 0 || shown < options.count; ++shown) {
    Pause(options.interval);
    if (interrupted) break;
    auto later = client.GetStatus();
    if (!later.ok()) return Report(later.status());
    const Rates rates = Between(*earlier, *later);
    const std::string text = output == Output::kJson ? TopJson(*later, rates) : TopText(*later, rates);
    if (in_place) std::fputs("\x1b[H\x1b[2J", stdout);
    if (!in_place && shown > 0 && output == Output::kTable) std::fputs("\n", stdout);
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
    earlier = std::move(later);
  }
  return kOk;
}

}  // namespace

int RunTop(const Invocation& invocation) {
  TopOptions options;
  if (!Parse(invocation.arguments, options)) {
    std::fputs("usage: xpuctl top [--once] [--interval SECONDS, at least 0.05] [-n COUNT]\n", stderr);
    return kUsage;
  }
  auto client = ControlClient::Connect(invocation.address);
  if (!client.ok()) return Report(client.status());
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return Loop(*client, options, invocation.output);
}

}  // namespace xpud::xpuctl
