// Resolves the handles of a decoded op and checks the call. REQUIRES: the lane's thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "daemon/stream/device_state.h"
#include "daemon/stream/op.h"

namespace xpud::stream {

class OpChecker {
 public:
  OpChecker(DeviceState& state, handles::BufferTable& buffers) : state_(state), buffers_(buffers) {}

  // Resolves the operands. On failure, those of the outputs that were found are set, so that they can be
  // poisoned.
  absl::Status Resolve(const DecodedOp& decoded, uint32_t queue, CheckedOp& op);
  // Checks what Resolve has set.
  absl::Status Check(const CheckedOp& op) const;

 private:
  absl::Status ResolveTensor(const wire::DecodedOperand& from, kernels::Operand& to, handles::Buffer*& buffer,
                             uint32_t queue);

  DeviceState& state_;
  handles::BufferTable& buffers_;
};

}  // namespace xpud::stream
