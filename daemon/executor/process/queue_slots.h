// The queues of a device, each in a slot, whose number names the queue in the executor. Owned by
// ProcessDevice; the queues themselves belong to sessions. REQUIRES: the lane's thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "daemon/executor/process/messages.h"

namespace xpud::executor::process {

class ExecutorRings;
class ProcessQueue;

class QueueSlots {
 public:
  struct Slot {
    ProcessQueue* queue = nullptr;         // null: free
    uint64_t owner = 0;                    // session of the queue
    uint64_t appended = 0;                 // DeviceQueue::appended of the slot's last queue
    const ExecutorRings* rings = nullptr;  // of the executor that has it
  };

  // Returns the number of a free slot, or ResourceExhausted.
  absl::StatusOr<uint32_t> FindFree() {
    const auto free = std::ranges::find(slots_, nullptr, &Slot::queue);
    if (free == slots_.end() && slots_.size() == kMaxQueues)
      return absl::ResourceExhaustedError(
          absl::StrCat("too many queues on the device (", kMaxQueues, "); destroy some first"));
    const auto number = static_cast<uint32_t>(free - slots_.begin());
    if (number == slots_.size()) slots_.emplace_back();
    return number;
  }
  Slot& operator[](uint32_t number) { return slots_[number]; }
  // Returns null if the slot is free or does not exist.
  ProcessQueue* Find(uint32_t number) const {
    return number < slots_.size() ? slots_[number].queue : nullptr;
  }
  // Calls visit(queue) for each queue, none of which it may destroy.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const Slot& slot : slots_)
      if (slot.queue != nullptr) visit(*slot.queue);
  }
  // The same for those of one executor.
  template <typename Visit>
  void ForEachOf(const ExecutorRings& rings, Visit visit) const {
    for (const Slot& slot : slots_)
      if (slot.queue != nullptr && slot.rings == &rings) visit(*slot.queue);
  }
  // The queues that a session has there.
  std::vector<ProcessQueue*> Of(const ExecutorRings& rings, uint64_t owner) const {
    std::vector<ProcessQueue*> queues;
    for (const Slot& slot : slots_)
      if (slot.queue != nullptr && slot.rings == &rings && slot.owner == owner) queues.push_back(slot.queue);
    return queues;
  }

 private:
  std::vector<Slot> slots_;
};

}  // namespace xpud::executor::process
