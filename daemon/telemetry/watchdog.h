// Sends keep-alives to the service manager while the daemon makes progress: each one is sent after every lane
// has run a posted task. Owned by main.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "daemon/telemetry/notifier.h"

namespace xpud::telemetry {

class Watchdog {
 public:
  // Has the daemon call `done` when all lanes have made progress. Does not wait for it.
  using Ask = std::function<void(std::function<void()> done)>;

  // Asks three times per `expected`, on a thread of its own. `notifier` must outlive the watchdog. Returns
  // ResourceExhausted if the thread cannot be started.
  static absl::StatusOr<std::unique_ptr<Watchdog>> Start(const Notifier& notifier,
                                                         std::chrono::microseconds expected, Ask ask);
  ~Watchdog();  // REQUIRES: what `ask` uses still exists. Does not wait for an answer
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  struct State;
  Watchdog(const Notifier& notifier, std::chrono::microseconds expected, Ask ask);
  void Main();

  const Notifier& notifier_;
  const std::chrono::microseconds pause_;
  const Ask ask_;
  const std::shared_ptr<State> state_;  // shared with answers that come late
  std::thread thread_;                  // last member, so that it is destroyed first
};

}  // namespace xpud::telemetry
