// The control plane of the daemon. Thread-safe: each call has a client of its own, which is kept for later calls.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "sdk/control/client.h"

namespace xpud::agent {

class DaemonLink {
 public:
  // `socket`: the daemon's socket for clients; control.sock is beside it.
  explicit DaemonLink(std::string socket) : socket_(std::move(socket)) {}

  // Calls `call` with a client. Returns Unavailable if the daemon does not answer.
  template <typename Result>
  absl::StatusOr<Result> Call(absl::FunctionRef<absl::StatusOr<Result>(control::Client&)> call) {
    absl::StatusOr<control::Client> client = Take();
    if (!client.ok()) return client.status();
    absl::StatusOr<Result> result = call(*client);
    if (result.ok() || !IsLost(result.status())) Return(*std::move(client));
    return result;
  }

 private:
  absl::StatusOr<control::Client> Take();
  void Return(control::Client client);
  static bool IsLost(const absl::Status& status);

  const std::string socket_;
  Mutex mutex_;
  std::vector<control::Client> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::agent
