// Notifies systemd of the daemon's state by the protocol of sd_notify: datagrams to $NOTIFY_SOCKET. Does
// nothing if that is not set. Thread-safe.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace xpud::telemetry {

class Notifier {
 public:
  Notifier() = default;  // does nothing
  // Removes the variables from the environment, so that no child notifies in our name. REQUIRES: one thread,
  // and not confined yet, since it connects.
  static absl::StatusOr<Notifier> FromEnvironment();

  // Sends lines such as "READY=1". Drops them if they cannot be sent within a second.
  void Notify(std::string_view lines) const;
  // How often "WATCHDOG=1" is expected at least; nullopt: never.
  std::optional<std::chrono::microseconds> watchdog() const { return watchdog_; }

 private:
  UniqueFd socket_;
  std::optional<std::chrono::microseconds> watchdog_;
};

}  // namespace xpud::telemetry
