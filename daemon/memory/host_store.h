// Host memory for what has left a device: taken in steps of kStepBytes, whose pages the kernel makes and the
// device imports in the background, and given out in slots. A slot is cleared before it is given out again.
// REQUIRES: the lane's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/executor/api/background.h"
#include "daemon/executor/api/device.h"
#include "daemon/executor/api/mover.h"
#include "proto/base/mapping.h"
#include "proto/base/unique_fd.h"

namespace xpud::memory {

class HostStore {
 public:
  static constexpr uint64_t kSlotBytes = 16 << 20;
  static constexpr uint64_t kStepBytes = 256 << 20;

  // At most `limit` bytes. `wake` is called on any thread when Poll has something to do.
  HostStore(executor::Device& device, uint64_t limit, std::function<void()> wake);
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;

  // Returns slots for `bytes`, or nullopt: there are too few now. Then more are taken, as far as the limit
  // allows.
  std::optional<executor::HostParts> Take(uint64_t bytes);
  // REQUIRES: nothing reads or writes them.
  void Return(executor::HostParts parts);
  // Has `bytes` ready for Take soon, as far as the limit allows.
  void Prepare(uint64_t bytes);
  // Gives the machine everything back if nothing is used.
  void Shrink();
  // Call often.
  void Poll() { background_.FinishDone(); }

  static uint64_t SlotBytesFor(uint64_t bytes) { return (bytes + kSlotBytes - 1) / kSlotBytes * kSlotBytes; }
  uint64_t limit() const { return limit_; }
  uint64_t used_bytes() const { return used_; }    // in slots that were taken
  uint64_t taken_bytes() const { return taken_; }  // of the machine
  uint64_t free_bytes() const { return free_.size() * kSlotBytes; }
  // Whether slots will be free soon without anybody returning any: a step is taken, or some are cleared.
  bool is_busy() const { return takes_step_ || clearing_ != 0; }
  // Why the last step could not be taken; OK: it could.
  const absl::Status& trouble() const { return trouble_; }

 private:
  struct Step {
    UniqueFd fd;
    Mapping mapping;
    std::unique_ptr<executor::HostMemory> memory;
  };

  absl::Status StartStep();
  void Import(const std::shared_ptr<Step>& step);
  void AddSlots(const executor::HostMemory& memory, uint64_t offset, uint64_t bytes);
  void AddStep(std::shared_ptr<Step> step, absl::StatusOr<std::unique_ptr<executor::HostMemory>> imported);

  executor::Device& device_;
  const uint64_t limit_;
  uint64_t used_ = 0, taken_ = 0;
  int clearing_ = 0;  // calls of Return
  bool takes_step_ = false;
  absl::Status trouble_;
  std::vector<std::shared_ptr<Step>> steps_;
  std::vector<executor::HostPart> free_;
  executor::Background background_;  // clears slots; last member, destroyed first
};

}  // namespace xpud::memory
