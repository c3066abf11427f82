#include "tools/xpuctl/samples.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

namespace xpud::xpuctl {
namespace {

volatile sig_atomic_t interrupted = 0;

}  // namespace

void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGHUP, &action, nullptr);
  sigaction(SIGQUIT, &action, nullptr);
}

bool Interrupted() { return interrupted != 0; }

void Pause(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!interrupted && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

int ShowSamples(const Invocation& invocation,
                absl::FunctionRef<absl::StatusOr<std::string>(bool first)> sample) {
  const int64_t count = invocation.every ? invocation.count : 1;
  const bool text = invocation.output == Output::kTable || invocation.output == Output::kWide;
  const bool in_place = text && count != 1 && isatty(STDOUT_FILENO);
  if (count != 1) CatchInterrupts();
  for (int64_t shown = 0; count < 0 || shown < count; ++shown) {
    if (shown > 0) Pause(*invocation.every);
    if (Interrupted()) break;
    const auto shot = sample(shown == 0);
    if (!shot.ok()) return Report(shot.status());
    if (Interrupted()) break;
    if (in_place) std::fputs("\x1b[H\x1b[2J", stdout);
    if (!in_place && shown > 0 && text) std::fputs("\n", stdout);
    std::fputs(shot->c_str(), stdout);
    if (std::fflush(stdout) != 0) return kError;  // the reader is gone
  }
  return kOk;
}

}  // namespace xpud::xpuctl
