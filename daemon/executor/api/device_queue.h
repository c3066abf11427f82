// One in-order stream of work on a device. Addresses are the device's. The engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/api/launch.h"

namespace xpud::executor {

// Part of a device's memory that a command uses.
struct MemoryUse {
  enum class Kind : uint32_t {
    kRead,
    kWrite,      // every byte, whatever was there
    kWritePart,  // some of the bytes
  };
  uint64_t address = 0;
  uint64_t bytes = 0;
  Kind kind = Kind::kRead;
};

using MemoryRange = std::pair<uint64_t, uint64_t>;  // address, bytes

class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;  // the work is done, or the device gone

  // `uses`: all memory that outlives the command and that it reads or writes.
  virtual absl::Status Launch(const kernels::LaunchList& launches, std::span<const MemoryUse> uses) = 0;
  // The same, but where work is done when the call returns it may stop after about `nanoseconds`: false. Then
  // it is called again with the same launches, to go on, and nothing else of this queue is called meanwhile.
  virtual absl::StatusOr<bool> LaunchFor(const kernels::LaunchList& launches, std::span<const MemoryUse> uses,
                                         uint64_t /*nanoseconds*/) {
    absl::Status launched = Launch(launches, uses);
    if (!launched.ok()) return launched;
    return true;
  }
  virtual absl::Status Copy(void* target, const void* source, uint64_t bytes) = 0;
  // From memory of the daemon that may change once this returns.
  virtual absl::Status Upload(void* target, std::span<const std::byte> source) = 0;
  virtual absl::Status Zero(void* target, uint64_t bytes) = 0;
  // Stores `value` at `word` once all that was appended before is done.
  virtual absl::Status WriteValue(uint64_t* word, uint64_t value) = 0;
  // The device's clock, in nanoseconds, once all that was appended before is done.
  virtual absl::Status WriteTimestamp(uint64_t* word) = 0;
  // Where the values of WriteValue can be read here: `*done` is the last one that was reached.
  virtual void Watch(const uint64_t* /*done*/) {}
  // Whether it takes work now. False while its executor is replaced or has enough to do.
  virtual bool ready() const { return true; }
  // All that was appended before the last WriteValue of up to `value` is known to be done.
  virtual void Completed(uint64_t /*value*/) {}
  // What went wrong since the last call, apart from what the calls above said.
  struct Trouble {
    absl::Status error;               // OK: nothing
    std::vector<MemoryRange> spoilt;  // memory whose contents were lost
  };
  virtual bool HasTrouble() const { return false; }
  virtual Trouble TakeTrouble() { return {}; }
};

}  // namespace xpud::executor
