// Hands out ids of loop kernels: dense, and reused. Under its DeviceSession's lock.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/wire/commands.h"

namespace xpud::client {

class KernelIds {
 public:
  // Returns ResourceExhausted when all ids of the wire are in use.
  absl::StatusOr<uint32_t> Take() {
    if (!free_.empty()) {
      const uint32_t id = free_.back();
      free_.pop_back();
      return id;
    }
    if (last_ < wire::kMaxKernels) return ++last_;
    return absl::ResourceExhaustedError(
        absl::StrCat("a session can hold at most ", wire::kMaxKernels, " loop kernels on a device"));
  }
  void Return(uint32_t id) { free_.push_back(id); }

 private:
  uint32_t last_ = 0;
  std::vector<uint32_t> free_;
};

}  // namespace xpud::client
