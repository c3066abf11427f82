// One in-order stream of work on a device. Addresses are in the device's address space. REQUIRES: the lane's
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/executor/api/work_time.h"
#include "daemon/tenant/time_grant.h"
#include "kernels/api/launch.h"

namespace xpud::executor {

// Part of a device's memory that a command uses.
struct MemoryUse {
  enum class Kind : uint32_t {
    kRead,
    kWrite,      // every byte is written; the earlier contents do not matter
    kWritePart,  // some bytes are written
  };
  uint64_t address = 0;
  uint64_t bytes = 0;
  Kind kind = Kind::kRead;
};

using MemoryRange = std::pair<uint64_t, uint64_t>;  // address, bytes

class DeviceQueue {
 public:
  // Waits for the end of work that could not be followed. REQUIRES: the work is done, it was lost, or a call
  // has failed.
  virtual ~DeviceQueue() = default;

  // `uses` lists all memory that the command reads or writes and that outlives the command.
  virtual absl::Status Launch(const kernels::LaunchList& launches, std::span<const MemoryUse> uses) = 0;
  // Like Launch, but on synchronous devices it may stop after about `nanoseconds`, unless `goes_on()` allows
  // as much again, and return false. Then call it again with the same launches to continue; until then no
  // other function of this queue may be called.
  virtual absl::StatusOr<bool> LaunchFor(const kernels::LaunchList& launches, std::span<const MemoryUse> uses,
                                         uint64_t /*nanoseconds*/, absl::FunctionRef<bool()> /*goes_on*/) {
    absl::Status launched = Launch(launches, uses);
    if (!launched.ok()) return launched;
    return true;
  }
  // Ends launches that LaunchFor stopped: on return nothing of them is running. Until then groups may run
  // between the calls, on cores that nothing else uses.
  virtual void EndStopped() {}
  // Returns how much such cores have worked since the last call, as time of the whole device.
  virtual uint64_t TakeHelpedNs() { return 0; }
  virtual absl::Status Copy(void* target, const void* source, uint64_t bytes) = 0;
  // Copies `source`, which may change after this returns.
  virtual absl::Status Upload(void* target, std::span<const std::byte> source) = 0;
  // Stores `value` at `word` when all earlier work is done.
  virtual absl::Status WriteValue(uint64_t* word, uint64_t value) = 0;
  // Stores the device's clock, in nanoseconds, at `word` when all earlier work is done.
  virtual absl::Status WriteTimestamp(uint64_t* word) = 0;
  // Sets the word that holds the last value of WriteValue that was reached.
  virtual void Watch(const uint64_t* /*done*/) {}
  // The class of the session has changed.
  virtual void SetPriority(PriorityClass /*priority*/) {}
  // Whether the work runs in an executor that other classes do not use. A device gives each of its executors
  // the time that it wants, so this work does not hold up others by what is in flight.
  virtual bool apart() const { return false; }
  // Whether the queue takes work. False while its executor is being replaced or has enough work.
  virtual bool ready() const { return true; }
  // Says that all work appended before the last WriteValue of up to `value` is done.
  virtual void Completed(uint64_t /*value*/) {}
  // How many pieces of work were appended: launches and other commands of the device. 0 if the device does
  // not say when they ran.
  virtual uint64_t appended() const { return 0; }
  // Whether the device says when work that is appended now runs; see Device::Trace.
  virtual bool times_work() const { return false; }
  // Returns when work ran, since the last call.
  virtual std::vector<WorkTime> TakeTimes() { return {}; }
  // An error since the last call that the calls above did not return.
  struct Trouble {
    absl::Status error;               // OK: none
    std::vector<MemoryRange> spoilt;  // memory whose contents are lost
  };
  virtual bool HasTrouble() const { return false; }
  // Whether its work is lost: the device does nothing more for it. A Verdict says so of an owner; other
  // queues of that owner, in another executor, may go on.
  virtual bool is_lost() const { return false; }
  virtual Trouble TakeTrouble() { return {}; }
};

}  // namespace xpud::executor
