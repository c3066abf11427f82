// Tells who started the daemon, systemd, how it is: sd_notify's protocol, datagrams to $NOTIFY_SOCKET.
// Without that there is nobody to tell, and nothing is sent. Any thread may notify.
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
  Notifier() = default;  // nobody to tell
  // Takes the variables out of the environment, so that no child tells in our name; hence while there is one
  // thread. Connects, which the confined daemon cannot.
  static absl::StatusOr<Notifier> FromEnvironment();

  // Lines such as "READY=1". What cannot be sent within a second is lost.
  void Notify(std::string_view lines) const;
  // How often at least "WATCHDOG=1" is expected; nothing where it is not.
  std::optional<std::chrono::microseconds> watchdog() const { return watchdog_; }

 private:
  UniqueFd socket_;
  std::optional<std::chrono::microseconds> watchdog_;
};

}  // namespace xpud::telemetry
