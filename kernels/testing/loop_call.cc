#include "kernels/testing/loop_call.h"

#include "proto/base/status_macros.h"
#include "proto/loops/codec.h"

namespace xpud::kernels {

LoopCall::LoopCall(const loops::Kernel& kernel, const std::vector<int64_t>& sizes,
                   const std::vector<TestTensor*>& operands)
    : attributes_{ops::Number::Integer(1), ops::Number::Integer(static_cast<int64_t>(sizes.size()))} {
  for (const int64_t size : sizes) attributes_.push_back(ops::Number::Integer(size));
  refused_ = Make(kernel, operands);
}

absl::Status LoopCall::Make(const loops::Kernel& kernel, const std::vector<TestTensor*>& operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    Operand operand = operands[i]->operand();
    if (kernel.operands[i].role == loops::Role::kScalar) {
      const Exact value = operands[i]->At(0);
      operand = {.dtype = operand.dtype, .immediate = true};
      operand.number = ops::IsFloating(operand.dtype) ? ops::Number::Real(static_cast<double>(value))
                                                      : ops::Number::Integer(static_cast<int64_t>(value));
    }
    (kernel.operands[i].role >= loops::Role::kWritten ? outputs_ : inputs_).push_back(operand);
  }
  lists_ = {static_cast<uint16_t>(outputs_.size()), static_cast<uint16_t>(inputs_.size())};
  call_ = {.row = &ops::RowOf("xpud::loop"),
           .outputs = outputs_,
           .inputs = inputs_,
           .attributes = attributes_,
           .error_word = &error_word_,
           .lists = lists_};
  ASSIGN_OR_RETURN(auto definition, loops::Definition::Create(loops::Encode(kernel), "test"));
  cache_ = std::make_unique<loops::CallCache>(std::move(definition));
  ASSIGN_OR_RETURN(call_.kernel, cache_->Find(call_));
  return absl::OkStatus();
}

}  // namespace xpud::kernels
