// Lets the service manager know that the engine goes on, and only while it does: each sign of life is sent
// after the engine has done something that it was asked to do. Owned by main.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "daemon/telemetry/notifier.h"

namespace xpud::telemetry {

class Watchdog {
 public:
  // Has the engine run `done`, soon if it goes on, and does not wait for it.
  using Ask = std::function<void(std::function<void()> done)>;

  // Asks three times in `expected`, on a thread of its own. `notifier` outlives this.
  Watchdog(const Notifier& notifier, std::chrono::microseconds expected, Ask ask);
  ~Watchdog();  // before what `ask` asks; does not wait for an answer
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  struct State;
  void Main();

  const Notifier& notifier_;
  const std::chrono::microseconds pause_;
  const Ask ask_;
  const std::shared_ptr<State> state_;  // which an answer that comes late has, too
  std::thread thread_;                  // last: ends first
};

}  // namespace xpud::telemetry
