// A call of a loop kernel on tensors, as the daemon would make it. Used by one thread.
#pragma once

#include <vector>

#include "kernels/testing/tensor.h"
#include "proto/loops/definition.h"

namespace xpud::kernels {

class LoopCall {
 public:
  // `operands`: one for each of the kernel's, scalars have one element. They outlive the call.
  LoopCall(const loops::Kernel& kernel, const std::vector<int64_t>& sizes,
           const std::vector<TestTensor*>& operands);
  LoopCall(const LoopCall&) = delete;
  LoopCall& operator=(const LoopCall&) = delete;

  // Why the kernel or the call is refused.
  const absl::Status& refused() const { return refused_; }
  const OpCall& call() const { return call_; }
  uint64_t error_word() const { return error_word_; }

 private:
  absl::Status Make(const loops::Kernel& kernel, const std::vector<TestTensor*>& operands);

  std::unique_ptr<loops::CallCache> cache_;
  std::vector<Operand> outputs_, inputs_;
  std::vector<ops::Number> attributes_;
  std::vector<uint16_t> lists_;
  uint64_t error_word_ = 0;
  OpCall call_;
  absl::Status refused_;
};

}  // namespace xpud::kernels
