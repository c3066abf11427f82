// The memory of one device: chunks from the device, cut into blocks for buffers. Memory that changes its
// tenant is zeroed first. The engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "daemon/executor/device.h"
#include "daemon/memory/range_allocator.h"

namespace xpud::memory {

struct Block {
  std::byte* address = nullptr;
  uint64_t bytes = 0;  // charged
  uint32_t tenant = 0;
  uint64_t born = 0;  // its user's own count of when it was taken
};

class Pool {
 public:
  Pool(executor::Device& device, uint32_t index) : device_(device), index_(index) {}
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Fills memory with zeros in the order of the work that will use it.
  using Zero = absl::FunctionRef<absl::Status(std::byte* address, uint64_t bytes)>;
  // A block for `tenant` (not 0). DeviceOutOfMemory when the device has no more.
  absl::StatusOr<Block> Allocate(uint64_t bytes, uint32_t tenant, Zero zero);
  void Free(const Block& block);
  // Gives chunks that are wholly free back to the device.
  void Trim();

  uint64_t used_bytes() const { return ranges_.used_bytes(); }
  uint64_t chunk_bytes() const { return chunk_bytes_; }
  uint64_t peak_bytes() const { return peak_; }

 private:
  absl::Status Grow(uint64_t bytes);
  absl::Status OutOfMemory(uint64_t asked, const std::string& cause = "") const;

  executor::Device& device_;
  const uint32_t index_;  // of the device, for messages
  RangeAllocator ranges_;
  std::vector<std::unique_ptr<executor::Chunk>> chunks_;
  uint64_t chunk_bytes_ = 0;
  uint64_t peak_ = 0;
};

}  // namespace xpud::memory
