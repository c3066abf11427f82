// The device memory of one tenant: chunks, and what is free in them. Knows no limits: see Pool. REQUIRES: the
// lane's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "daemon/executor/api/device.h"
#include "daemon/memory/range_allocator.h"

namespace xpud::memory {

class Arena {
 public:
  using Range = RangeAllocator::Range;
  // Of all arenas of a device.
  struct Totals {
    uint64_t used_bytes = 0, chunk_bytes = 0;
  };

  Arena(executor::Device& device, Totals& totals) : device_(device), totals_(totals) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Bytes of the smallest chunk that has room for a range of `bytes`.
  static uint64_t ChunkSizeFor(uint64_t bytes);
  // Takes a chunk of the device that has room for `bytes`: a larger one the more the arena has, but of at
  // most `most` bytes. Returns the device's error. REQUIRES: ChunkSizeFor(bytes) <= most.
  absl::Status Grow(uint64_t bytes, uint64_t most);
  // Returns completely free chunks to the device, as long as `keep` bytes remain.
  void Trim(uint64_t keep);

  // As in RangeAllocator. Allowed for access is what is allocated.
  std::optional<Range> Allocate(uint64_t bytes);
  void Free(const Range& range);
  bool Fits(uint64_t bytes) const { return ranges_.Fits(bytes); }
  void ReturnSlabs() { ranges_.ReturnSlabs(); }
  bool IsReturnPaid() const { return ranges_.IsReturnPaid(); }

  uint64_t used_bytes() const { return ranges_.used_bytes(); }
  uint64_t chunk_bytes() const { return chunk_bytes_; }

 private:
  executor::Device& device_;
  Totals& totals_;
  RangeAllocator ranges_;
  std::vector<std::unique_ptr<executor::Chunk>> chunks_;
  uint64_t chunk_bytes_ = 0;
};

}  // namespace xpud::memory
