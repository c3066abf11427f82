// Addresses that a device's executors give to memory, one after another alike: a part of the address space
// that nothing else uses. The engine thread only.
#pragma once

#include <cstdint>
#include <map>

#include "absl/status/statusor.h"

namespace xpud::executor::process {

class AddressSpace {
 public:
  // The parts for device `index` of this process: for its own memory, for the daemon's, and for clients'.
  static absl::StatusOr<AddressSpace> ForChunks(uint32_t index);
  static absl::StatusOr<AddressSpace> ForHostMemory(uint32_t index);
  static absl::StatusOr<AddressSpace> ForClientMemory(uint32_t index);

  // The lowest free range of at least `bytes`, whole units. ResourceExhausted when there is none.
  absl::StatusOr<uint64_t> Take(uint64_t bytes);
  void Return(uint64_t address);

 private:
  static absl::StatusOr<AddressSpace> At(uint32_t index, uint64_t begin, uint64_t bytes, uint64_t unit);
  AddressSpace(uint64_t begin, uint64_t end, uint64_t unit) : begin_(begin), end_(end), unit_(unit) {}

  uint64_t begin_, end_, unit_;
  std::map<uint64_t, uint64_t> taken_;  // address -> end
};

}  // namespace xpud::executor::process
