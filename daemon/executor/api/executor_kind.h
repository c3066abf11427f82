// Which process calls a device's driver.
#pragma once

namespace xpud::executor {

enum class ExecutorKind {
  kAuto,     // a process for each GPU, the daemon for the CPU device
  kThread,   // the daemon
  kProcess,  // an executor process for each device
};

}  // namespace xpud::executor
