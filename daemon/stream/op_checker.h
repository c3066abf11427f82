// Resolves the handles of a decoded op and checks the call. REQUIRES: the lane's thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "daemon/handles/kernel_table.h"
#include "daemon/stream/device_state.h"
#include "daemon/stream/op.h"

namespace xpud::stream {

class OpChecker {
 public:
  OpChecker(DeviceState& state, handles::BufferTable& buffers, const handles::KernelTable& kernels)
      : state_(state), buffers_(buffers), kernels_(kernels) {}

  // Resolves the operands. On failure, those of the outputs that were found are set, so that they can be
  // poisoned.
  absl::Status Resolve(const DecodedOp& decoded, uint32_t queue, CheckedOp& op);
  // Checks what Resolve has set, and finds the loop kernel of a call that runs one.
  absl::Status Check(CheckedOp& op) const;

 private:
  absl::Status ResolveTensor(const wire::DecodedOperand& from, kernels::Operand& to, handles::Buffer*& buffer,
                             uint32_t queue);
  // Sets the call's kernel. On failure, only for the call's description.
  absl::Status FindKernel(kernels::OpCall& call) const;

  DeviceState& state_;
  handles::BufferTable& buffers_;
  const handles::KernelTable& kernels_;
};

}  // namespace xpud::stream
