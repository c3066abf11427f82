// Which process calls a device's driver.
#pragma once

#include <cstdint>

namespace xpud::executor {

enum class ExecutorKind {
  kAuto,     // a process for each GPU, the daemon for the CPU device
  kThread,   // the daemon
  kProcess,  // an executor process for each device
};

// What a context of a GPU takes of its memory.
inline constexpr uint64_t kContextBytes = uint64_t{520} << 20;

// Whether the work of class batch has an executor process of its own on each device, so that the device
// switches between it and the others' work, in the middle of a kernel if need be. It takes device memory of
// its own (kContextBytes of a GPU).
enum class BatchExecutor {
  kOff,
  kAuto,  // while such work has commands of a millisecond and more
  kOn,    // while there is such work
};

// The executors that a device may have.
enum class ExecutorRole {
  kAll,    // of all classes
  kBatch,  // of class batch alone
};
inline constexpr ExecutorRole kExecutorRoles[] = {ExecutorRole::kAll, ExecutorRole::kBatch};

}  // namespace xpud::executor
