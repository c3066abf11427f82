// An asymmetric barrier between processes (membarrier(2)). The side that runs often needs no fence between
// its store and its load. The side that runs rarely makes every processor that runs a registered process
// execute a full barrier.
#pragma once

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace xpud::transport {

// The frequent side, once a process. Returns true if IssueRemoteBarrier in another process reaches this
// process.
inline bool AllowRemoteBarriers() {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

// The rare side. Afterwards, earlier stores of other processes are visible here, and earlier stores of this
// process are visible to them.
inline void IssueRemoteBarrier() { syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0); }

}  // namespace xpud::transport
