#include "deploy/agent/core/daemon_link.h"

namespace xpud::agent {

absl::StatusOr<control::Client> DaemonLink::Take() {
  {
    const MutexLock lock(mutex_);
    if (!idle_.empty()) {
      control::Client client = std::move(idle_.back());
      idle_.pop_back();
      return client;
    }
  }
  absl::StatusOr<control::Client> client = control::Client::Connect(socket_);
  if (absl::IsNotFound(client.status())) return absl::UnavailableError(client.status().message());
  return client;
}

void DaemonLink::Return(control::Client client) {
  const MutexLock lock(mutex_);
  if (idle_.size() < kMaxIdle) idle_.push_back(std::move(client));
}

}  // namespace xpud::agent
