// Builds and installs the seccomp filter from the table of system calls.
#pragma once

#include <linux/filter.h>

#include <vector>

#include "absl/status/status.h"
#include "daemon/confinement/system_calls.h"

namespace xpud::confinement {

enum class Refusal { kError, kLog };  // calls outside the table fail with EPERM, or are only logged

// Returns the BPF program that the kernel runs before each system call.
std::vector<sock_filter> AssembleFilter(Roles role, Refusal refusal);

// Sets no_new_privs and installs the filter for all threads of this process and their children. Cannot be
// undone. Filters add up: the strictest one counts.
absl::Status InstallFilter(Roles role, Refusal refusal);

}  // namespace xpud::confinement
