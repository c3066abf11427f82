// The memory of one device: chunks, cut into blocks for buffers. Memory that changes its tenant is zeroed
// first. The chunks always cover all granted credit. REQUIRES: the lane's thread.
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
  uint64_t bytes = 0;                  // size charged
  Ledger::Account* account = nullptr;  // owner
  uint64_t born = 0;                   // set by the owner: when the block was allocated, by its own count
};

class Pool {
 public:
  Pool(executor::Device& device, uint32_t index);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Fills memory with zeros, ordered before the work that will use it.
  using Zero = absl::FunctionRef<absl::Status(std::byte* address, uint64_t bytes)>;
  // Allocates a block for `account`. Returns OutOfMemory if the account's credit does not cover it and the
  // device has no more memory.
  absl::StatusOr<Block> Allocate(uint64_t bytes, Ledger::Account& account, Zero zero);
  void Free(const Block& block);
  // Grants `more` bytes of credit to `account`, of which a block of `block` bytes will be allocated at once.
  // Returns OutOfMemory if the device lacks memory. The caller checks quotas.
  absl::Status GiveCredit(Ledger::Account& account, uint64_t more, uint64_t block);
  // Whether the device has `bytes` that are not reserved as credit.
  bool HasSpare(uint64_t bytes) const { return reserved_bytes() + bytes <= ledger_.capacity(); }
  // Returns completely free chunks to the device.
  void Trim();

  Ledger& ledger() { return ledger_; }
  uint64_t used_bytes() const { return ranges_.used_bytes(); }
  MemoryShortage shortage() const {
    return {MemoryShortage::Scope::kDevice, ledger_.capacity(), reserved_bytes()};
  }
  uint64_t chunk_bytes() const { return chunk_bytes_; }
  uint64_t peak_bytes() const { return peak_; }

 private:
  absl::Status Grow(uint64_t bytes);
  // Ensures that `bytes` are free and not reserved as credit.
  absl::Status Secure(uint64_t bytes);
  // Ensures that there is a free range for a block of `bytes`.
  absl::Status MakeRoom(uint64_t bytes);
  uint64_t reserved_bytes() const { return used_bytes() + ledger_.unused(); }
  absl::Status Exhausted(uint64_t asked, const std::string& cause = "") const;

  executor::Device& device_;
  const uint32_t index_;  // the device's index, for messages
  Ledger ledger_;
  RangeAllocator ranges_;
  std::vector<std::unique_ptr<executor::Chunk>> chunks_;
  uint64_t chunk_bytes_ = 0;
  uint64_t peak_ = 0;
};

}  // namespace xpud::memory
