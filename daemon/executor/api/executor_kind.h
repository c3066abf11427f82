// Who calls a device's driver.
#pragma once

namespace xpud::executor {

enum class ExecutorKind {
  kAuto,     // a process for each GPU, a thread for the CPU device
  kThread,   // the daemon's own
  kProcess,  // one for each device
};

}  // namespace xpud::executor
