// Host memory for what has left a device: taken in steps of kStepBytes, whose pages the kernel makes and the
// device imports in the background, and given out in slots. A slot is cleared before it is given out again.
// What has no room there goes to files. REQUIRES: the lane's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/executor/api/background.h"
#include "daemon/executor/api/device.h"
#include "daemon/executor/api/mover.h"
#include "daemon/memory/file_store.h"
#include "proto/base/mapping.h"
#include "proto/base/unique_fd.h"

namespace xpud::memory {

class HostStore {
 public:
  static constexpr uint64_t kSlotBytes = 16 << 20;
  static constexpr uint64_t kStepBytes = 256 << 20;
  // With less, what is in files could not return while something leaves for it, unless all chunks are small:
  // see Residency::CanChangePlaces.
  static constexpr uint64_t kMinBytesWithFiles = 8 * kSlotBytes;

  // At most `limit` bytes, and beyond these in `files`. `wake` is called on any thread when Poll has
  // something to do.
  HostStore(executor::Device& device, uint64_t limit, FileStore::Space files,
            const std::function<void()>& wake);
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;

  // Returns slots for `bytes` if `keep` bytes remain free, or nullopt: there are too few now. Then more are
  // taken, as far as the limit allows.
  std::optional<executor::HostParts> Take(uint64_t bytes, uint64_t keep = 0);
  // REQUIRES: nothing reads or writes them.
  void Return(executor::HostParts parts);
  // Has `bytes` ready for Take soon, as far as the limit allows.
  void Prepare(uint64_t bytes);
  // Gives the machine everything back if nothing is used.
  void Shrink();
  // Call often.
  void Poll();

  static uint64_t SlotBytesFor(uint64_t bytes) { return (bytes + kSlotBytes - 1) / kSlotBytes * kSlotBytes; }
  uint64_t limit() const { return limit_; }
  uint64_t used_bytes() const { return used_; }    // in slots that were taken
  uint64_t taken_bytes() const { return taken_; }  // of the machine
  uint64_t free_bytes() const { return free_.size() * kSlotBytes; }
  // Whether slots will be free soon without anybody returning any: a step is taken, or some are cleared.
  bool is_busy() const { return takes_step_ || clearing_ != 0; }
  // Why the last step could not be taken; OK: it could.
  const absl::Status& trouble() const { return trouble_; }
  FileStore& files() { return files_; }
  const FileStore& files() const { return files_; }

 private:
  struct Step {
    UniqueFd fd;
    Mapping mapping;
    std::unique_ptr<executor::HostMemory> memory;
  };

  absl::Status StartStep();
  void Import(const std::shared_ptr<Step>& step);
  void AddStep(std::shared_ptr<Step> step, absl::StatusOr<std::unique_ptr<executor::HostMemory>> imported);

  executor::Device& device_;
  const uint64_t limit_;
  uint64_t used_ = 0, taken_ = 0;
  int clearing_ = 0;  // calls of Return
  bool takes_step_ = false;
  absl::Status trouble_;
  std::vector<std::shared_ptr<Step>> steps_;
  std::vector<executor::HostPart> free_;
  // Last members, destroyed first: their threads use slots.
  executor::Background background_;  // clears slots
  FileStore files_;
};

}  // namespace xpud::memory
