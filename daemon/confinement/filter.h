// The seccomp filter made from the table of system calls.
#pragma once

#include <linux/filter.h>

#include <vector>

#include "absl/status/status.h"
#include "daemon/confinement/system_calls.h"

namespace xpud::confinement {

enum class Refusal { kError, kLog };  // what is not in the table fails with EPERM; or is only logged

// The program that the kernel runs before each system call.
std::vector<sock_filter> AssembleFilter(Roles role, Refusal refusal);

// From now on, for every thread of this process and what they start: no new privileges, and this filter.
// Cannot be undone; filters add up, and the strictest counts.
absl::Status InstallFilter(Roles role, Refusal refusal);

}  // namespace xpud::confinement
