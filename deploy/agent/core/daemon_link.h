// The control plane of the daemon. Thread-safe: each call takes a client of its own, which is kept for later
// calls.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "sdk/control/client.h"

namespace xpud::agent {

class DaemonLink {
 public:
  // `socket`: the daemon's socket for clients; control.sock is beside it.
  explicit DaemonLink(std::string socket) : socket_(std::move(socket)) {}

  // Returns `call(client)`. Returns Unavailable or DeadlineExceeded if the daemon does not answer.
  template <typename Call>
  auto With(Call call) -> decltype(call(std::declval<control::Client&>())) {
    absl::StatusOr<control::Client> client = Take();
    if (!client.ok()) return client.status();
    auto result = call(*client);
    if (result.ok() || !IsLost(result.status())) Return(*std::move(client));
    return result;
  }

  // Whether the daemon may answer a later call.
  static bool IsLost(const absl::Status& status) {
    return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  }

 private:
  static constexpr size_t kMaxIdle = 8;

  absl::StatusOr<control::Client> Take();
  void Return(control::Client client);

  const std::string socket_;
  Mutex mutex_;
  std::vector<control::Client> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::agent
