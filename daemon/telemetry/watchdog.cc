#include "daemon/telemetry/watchdog.h"

#include <utility>

#include "proto/base/mutex.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::telemetry {
namespace {

constexpr int kSignsInTime = 3;

}  // namespace

struct Watchdog::State {
  Mutex mutex;
  CondVar changed;
  bool answered ABSL_GUARDED_BY(mutex) = false;
  bool stopping ABSL_GUARDED_BY(mutex) = false;

  void Answer() {
    MutexLock lock(mutex);
    answered = true;
    changed.NotifyAll();
  }
  void Stop() {
    MutexLock lock(mutex);
    stopping = true;
    changed.NotifyAll();
  }
  // Waits without a limit. Returns false if the watchdog ends.
  bool AwaitAnswer() {
    MutexLock lock(mutex);
    while (!answered && !stopping) changed.Wait(mutex);
    answered = false;
    return !stopping;
  }
  // Returns false if the watchdog ends.
  bool Pause(std::chrono::steady_clock::time_point until) {
    MutexLock lock(mutex);
    while (!stopping) {
      const auto rest = until - std::chrono::steady_clock::now();
      if (rest.count() <= 0) return true;
      changed.WaitFor(mutex, rest);
    }
    return false;
  }
};

Watchdog::Watchdog(const Notifier& notifier, std::chrono::microseconds expected, Ask ask)
    : notifier_(notifier),
      pause_(expected / kSignsInTime),
      ask_(std::move(ask)),
      state_(std::make_shared<State>()) {}

absl::StatusOr<std::unique_ptr<Watchdog>> Watchdog::Start(const Notifier& notifier,
                                                          std::chrono::microseconds expected, Ask ask) {
  std::unique_ptr<Watchdog> watchdog(new Watchdog(notifier, expected, std::move(ask)));
  ASSIGN_OR_RETURN(watchdog->thread_, StartThread("xpud-watchdog", [raw = watchdog.get()] { raw->Main(); }));
  return watchdog;
}

Watchdog::~Watchdog() {
  state_->Stop();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::Main() {
  do {
    ask_([state = state_] { state->Answer(); });
    if (!state_->AwaitAnswer()) return;
    notifier_.Notify("WATCHDOG=1");
  } while (state_->Pause(std::chrono::steady_clock::now() + pause_));
}

}  // namespace xpud::telemetry
