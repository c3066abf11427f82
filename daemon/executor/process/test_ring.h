// For tests that are the executor: what the daemon has sent through a ring.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <utility>

#include "absl/functional/function_ref.h"
#include "daemon/executor/process/private_ring.h"

namespace xpud::executor::process {

// Visits the messages that lie in the ring from position `seen` on, and leaves them there. Returns where they
// end.
inline uint64_t VisitSent(const PrivateRing& ring, uint64_t seen,
                          absl::FunctionRef<void(const Message&)> visit) {
  const PrivateRing executor =
      *PrivateRing::Open(UniqueFd(dup(ring.fd().get())), UniqueFd(dup(ring.doorbell().get())));
  uint64_t at = 0;
  const auto pending = executor.Pending();  // from the ring's beginning
  while (at < pending.size()) {
    const auto& message = reinterpret_cast<const Message&>(pending[at]);
    if (at >= seen) visit(message);
    at += message.bytes;
  }
  return at;
}

}  // namespace xpud::executor::process
