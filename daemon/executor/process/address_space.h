// Addresses that a device's executors give to memory, one after another alike: a part of the address space
// that nothing else uses. The engine thread only.
#pragma once

#include <cstdint>
#include <map>

#include "absl/status/statusor.h"

namespace xpud::executor::process {

class AddressSpace {
 public:
  static constexpr uint64_t kUnit = uint64_t{2} << 20;

  // The part for device `index` of this process.
  static absl::StatusOr<AddressSpace> Create(uint32_t index);

  // The lowest free range of at least `bytes`, whole units. ResourceExhausted when there is none.
  absl::StatusOr<uint64_t> Take(uint64_t bytes);
  void Return(uint64_t address);

 private:
  AddressSpace(uint64_t begin, uint64_t end) : begin_(begin), end_(end) {}

  uint64_t begin_, end_;
  std::map<uint64_t, uint64_t> taken_;  // address -> end
};

}  // namespace xpud::executor::process
