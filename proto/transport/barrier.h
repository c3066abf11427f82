// An asymmetric barrier between processes (membarrier(2)): the side that runs often orders its store and load
// with nothing, the side that runs rarely makes every processor that runs a registered process execute a full
// barrier.
#pragma once

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace xpud::transport {

// The frequent side, once a process: true when IssueRemoteBarrier in another process reaches this one.
inline bool AllowRemoteBarriers() {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

// The rare side: afterwards, what other processes' earlier stores wrote is visible here, and they see what
// was written here before.
inline void IssueRemoteBarrier() { syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0); }

}  // namespace xpud::transport
