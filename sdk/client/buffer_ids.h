// Hands out buffer ids: dense, reused with a larger generation. Under its DeviceSession's lock.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/ops/op_call.h"

namespace xpud::client {

class BufferIds {
 public:
  // No handle has a generation up to `used`.
  explicit BufferIds(uint32_t used = 0) : used_(used), highest_(used) {}

  // ResourceExhausted when the wire's ids are used up, Unavailable after Close.
  absl::StatusOr<BufferHandle> Take();
  void Return(BufferHandle handle);

  // Hands out no more. Returns the highest generation of all handles.
  uint32_t Close() {
    closed_ = true;
    return highest_;
  }

 private:
  const uint32_t used_;
  uint32_t highest_;
  bool closed_ = false;
  std::vector<uint32_t> generations_ = {0};  // by id; the last one handed out. Id 0 is null
  std::vector<uint32_t> free_;
};

}  // namespace xpud::client
