// Hands out buffer ids: dense, reused with a larger generation. Under Core's lock.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/ops/op_call.h"

namespace xpud::client {

class BufferIds {
 public:
  // ResourceExhausted when the wire's ids are used up.
  absl::StatusOr<BufferHandle> Take();
  void Return(BufferHandle handle);

 private:
  std::vector<uint32_t> generations_ = {0};  // by id; the last one handed out. Id 0 is null
  std::vector<uint32_t> free_;
};

}  // namespace xpud::client
