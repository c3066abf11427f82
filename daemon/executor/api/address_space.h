// Allocates addresses for a device's memory, from ranges that nothing else uses, so that a replacement
// executor can map the memory at the same addresses, and devices' memory never meets. REQUIRES: the lane's
// thread.
#pragma once

#include <cstdint>
#include <map>

#include "absl/status/statusor.h"

namespace xpud::executor {

class AddressSpace {
 public:
  // Of the addresses of chunks: what drivers can place memory at (XPUD_MEM_ADDRESS_UNIT).
  static constexpr uint64_t kChunkUnit = uint64_t{64} << 20;

  // The ranges for device `index`: device memory, the daemon's memory, and clients' memory.
  static absl::StatusOr<AddressSpace> ForChunks(uint32_t index);
  static absl::StatusOr<AddressSpace> ForHostMemory(uint32_t index);
  static absl::StatusOr<AddressSpace> ForClientMemory(uint32_t index);

  // Returns the lowest free range of at least `bytes`, in whole units, or ResourceExhausted.
  absl::StatusOr<uint64_t> Take(uint64_t bytes);
  void Return(uint64_t address);

 private:
  static absl::StatusOr<AddressSpace> At(uint32_t index, uint64_t begin, uint64_t bytes, uint64_t unit);
  AddressSpace(uint64_t begin, uint64_t end, uint64_t unit) : begin_(begin), end_(end), unit_(unit) {}

  uint64_t begin_, end_, unit_;
  std::map<uint64_t, uint64_t> taken_;  // address -> end
};

}  // namespace xpud::executor
