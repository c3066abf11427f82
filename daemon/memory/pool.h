// The memory of one device: chunks from the device, cut into blocks for buffers. Memory that changes its
// tenant is zeroed first. There are always chunks for all credit that was given. The engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "daemon/executor/api/device.h"
#include "daemon/memory/ledger.h"
#include "daemon/memory/range_allocator.h"

namespace xpud::memory {

struct Block {
  std::byte* address = nullptr;
  uint64_t bytes = 0;                  // charged
  Ledger::Account* account = nullptr;  // whose it is
  uint64_t born = 0;                   // its user's own count of when it was taken
};

class Pool {
 public:
  Pool(executor::Device& device, uint32_t index);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Fills memory with zeros in the order of the work that will use it.
  using Zero = absl::FunctionRef<absl::Status(std::byte* address, uint64_t bytes)>;
  // A block for `account`. OutOfMemory when that wants more than its credit and the device has no more.
  absl::StatusOr<Block> Allocate(uint64_t bytes, Ledger::Account& account, Zero zero);
  void Free(const Block& block);
  // Gives `account` so much more credit, of which a block of `block` bytes is to be taken at once; OK, or
  // OutOfMemory. Quotas are the caller's.
  absl::Status GiveCredit(Ledger::Account& account, uint64_t more, uint64_t block);
  // Whether the device has so much that is nobody's credit.
  bool HasSpare(uint64_t bytes) const { return spoken_for() + bytes <= ledger_.capacity(); }
  // Gives chunks that are wholly free back to the device.
  void Trim();

  Ledger& ledger() { return ledger_; }
  uint64_t used_bytes() const { return ranges_.used_bytes(); }
  MemoryShortage shortage() const {
    return {MemoryShortage::Scope::kDevice, ledger_.capacity(), spoken_for()};
  }
  uint64_t chunk_bytes() const { return chunk_bytes_; }
  uint64_t peak_bytes() const { return peak_; }

 private:
  absl::Status Grow(uint64_t bytes);
  // Sees to it that so much is free which is nobody's credit.
  absl::Status Secure(uint64_t bytes);
  // Sees to it that there is room for a block.
  absl::Status MakeRoom(uint64_t bytes);
  uint64_t spoken_for() const { return used_bytes() + ledger_.unused(); }
  absl::Status Exhausted(uint64_t asked, const std::string& cause = "") const;

  executor::Device& device_;
  const uint32_t index_;  // of the device, for messages
  Ledger ledger_;
  RangeAllocator ranges_;
  std::vector<std::unique_ptr<executor::Chunk>> chunks_;
  uint64_t chunk_bytes_ = 0;
  uint64_t peak_ = 0;
};

}  // namespace xpud::memory
