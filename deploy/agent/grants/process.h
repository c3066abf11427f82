// Processes that ask for grants: who they are, and how an agent that has started anew finds them.
// Thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace xpud::agent {

// A process of this machine, also after the agent or the machine has started anew: pids are used again.
struct ProcessName {
  pid_t pid = 0;        // in the agent's pid namespace
  std::string started;  // when: the boot, and clock ticks since it

  auto operator<=>(const ProcessName&) const = default;
};

// The process at the other end of a connection.
struct Caller {
  uint32_t uid = 0;
  std::vector<uint32_t> groups = {};  // its effective group and the others, as they were when it connected
  UniqueFd process = {};              // a pidfd; invalid: the kernel gives none
};
// Asks the kernel who has connected `socket`, a unix socket. Returns an error if it does not say.
absl::StatusOr<Caller> CallerAt(int socket);

// Returns FailedPrecondition, with the reason, if the process of a pidfd has ended or cannot be named.
absl::StatusOr<ProcessName> NameOf(const UniqueFd& process);
// Returns a pidfd, or NotFound if the process has ended.
absl::StatusOr<UniqueFd> OpenProcess(const ProcessName& name);

}  // namespace xpud::agent
