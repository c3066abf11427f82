// Allocates addresses for a device's memory, from ranges that nothing else uses, so that a replacement
// executor can map the memory at the same addresses, and devices' memory never meets. REQUIRES: the lane's
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"

namespace xpud::executor {

class AddressSpace {
 public:
  // Of the addresses of chunks: what drivers can place memory at (XPUD_MEM_ADDRESS_UNIT).
  static constexpr uint64_t kChunkUnit = uint64_t{64} << 20;

  // Addresses of device memory. All devices take them from one range, because a chunk of 16 MiB takes those
  // of 64, and a machine has many small devices or a few large ones.
  static absl::StatusOr<AddressSpace> ForChunks();
  // The ranges for device `index`: the daemon's memory, and clients' memory.
  static absl::StatusOr<AddressSpace> ForHostMemory(uint32_t index);
  static absl::StatusOr<AddressSpace> ForClientMemory(uint32_t index);

  AddressSpace(AddressSpace&& other) noexcept;
  AddressSpace& operator=(AddressSpace&& other) noexcept;
  ~AddressSpace();  // returns what was not returned

  absl::StatusOr<uint64_t> Take(uint64_t bytes);  // ResourceExhausted if there is no room
  void Return(uint64_t address);                  // does nothing for an address that Take did not give

 private:
  class FreeRanges;
  explicit AddressSpace(std::shared_ptr<FreeRanges> free) : free_(std::move(free)) {}
  static absl::StatusOr<std::shared_ptr<FreeRanges>> Open(uint64_t begin, uint64_t bytes, uint64_t unit);
  static absl::StatusOr<AddressSpace> OfDevice(uint32_t index, uint64_t begin, uint64_t bytes);

  std::shared_ptr<FreeRanges> free_;
  std::map<uint64_t, uint64_t> taken_;  // address -> end
};

}  // namespace xpud::executor
