// Softmax along one dimension: out[S] <- self[S], and its gradient: grad_input[S] <- grad_output[S],
// output[S]. Rows with formula "log" are log-softmax.
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr Parameter kOut[] = {{"out"}}, kSelf[] = {{"self"}};
constexpr Parameter kGradInput[] = {{"grad_input"}}, kGradAndOutput[] = {{"grad_output"}, {"output"}};
constexpr Attribute kDim[] = {{"dim", AttributeType::kDimension}};

absl::Status Check(const Call& call) {
  for (const Operand& input : call.inputs) RETURN_IF_ERROR(NeedSameSizes(input, call.outputs[0], "input"));
  return DimensionOf(call, call.outputs[0]).status();
}

absl::Status Infer(const Call& call, std::span<Operand> outputs) {
  SetOutputLike(outputs[0], call.inputs[0]);
  return absl::OkStatus();
}

Sample MakeSample(const Row& row, DType type) {
  Sample sample = {.outputs = {{{2, 3}, type}}, .inputs = {}, .attributes = {Number::Integer(1)}};
  sample.inputs.assign(row.inputs, {{2, 3}, type});
  return sample;
}

}  // namespace

constinit const FamilyDescriptor kSoftmaxFamily = {.name = "softmax",
                                                   .title = "softmax",
                                                   .outputs = kOut,
                                                   .inputs = kSelf,
                                                   .attributes = kDim,
                                                   .check = Check,
                                                   .infer = Infer,
                                                   .sample = MakeSample};
constinit const FamilyDescriptor kSoftmaxBackwardFamily = {.name = "softmax_backward",
                                                           .title = "softmax, backward",
                                                           .outputs = kGradInput,
                                                           .inputs = kGradAndOutput,
                                                           .attributes = kDim,
                                                           .check = Check,
                                                           .infer = Infer,
                                                           .sample = MakeSample};

}  // namespace xpud::ops
