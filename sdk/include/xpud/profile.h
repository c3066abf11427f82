// What a session's own commands did on a device, and when: Session::StartProfile, StopProfile. Times are in
// nanoseconds on the monotonic clock of this machine (CLOCK_MONOTONIC).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/ops/op_table.h"

namespace xpud {

struct ProfiledCommand {
  enum class Kind : uint8_t { kOp, kUpload, kDownload, kCopy, kOther };

  uint64_t sequence = 0;  // its number among the session's commands on this device
  Kind kind = Kind::kOther;
  const ops::Row* row = nullptr;  // of an op
  uint32_t queue = 0;
  uint64_t decoded_ns = 0;  // when the daemon turned to it
  // On the device. 0: it did nothing there, or had not ended. On a GPU, commands that end together share the
  // time by what they were expected to take.
  uint64_t began_ns = 0, ended_ns = 0;
  uint64_t device_ns = 0;  // less than ended - began if others ran in between
  uint64_t bytes = 0;      // read and written
  uint32_t kernel = 0;     // its first kernel: an index of Profile::kernels
  uint32_t launches = 0;   // kernels
  bool refused = false;    // it did not run
};

struct Profile {
  std::vector<ProfiledCommand> commands;  // in order
  std::vector<std::string> kernels;       // names; the first one is empty
  uint64_t overwritten = 0;               // older commands, which were not kept
};

// Is told of each command that a session sends. An implementation must be fast, and must not use the session.
class CommandObserver {
 public:
  virtual ~CommandObserver() = default;
  virtual void OnCommand(uint32_t device, uint32_t queue, uint64_t sequence) = 0;
};

}  // namespace xpud
