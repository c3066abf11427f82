#include "proto/ops/families/softmax.h"

#include "proto/base/status_macros.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

absl::Status Check(const Call& call) {
  const auto softmax = Read<SoftmaxCall>(call);
  RETURN_IF_ERROR(NeedSameSizes(*softmax.self, *softmax.out, "input"));
  return DimensionOf(softmax.dim, *softmax.out).status();
}

absl::Status CheckBackward(const Call& call) {
  const auto backward = Read<SoftmaxBackwardCall>(call);
  RETURN_IF_ERROR(NeedSameSizes(*backward.grad_output, *backward.grad_input, "input"));
  RETURN_IF_ERROR(NeedSameSizes(*backward.output, *backward.grad_input, "input"));
  return DimensionOf(backward.dim, *backward.grad_input).status();
}

absl::Status Infer(const Call& call, std::span<Operand> outputs) {
  SetOutputLike(*Outputs<SoftmaxCall>(outputs).out, *Read<SoftmaxCall>(call).self);
  return absl::OkStatus();
}

absl::Status InferBackward(const Call& call, std::span<Operand> outputs) {
  SetOutputLike(*Outputs<SoftmaxBackwardCall>(outputs).grad_input,
                *Read<SoftmaxBackwardCall>(call).grad_output);
  return absl::OkStatus();
}

Sample MakeSample(const Row&, DType type) {
  const Sample::Tensor tensor = {{2, 3}, type};
  return SampleOf(SoftmaxCall<Sample::Tensor>{.out = tensor, .self = tensor, .dim = 1});
}

Sample MakeBackwardSample(const Row&, DType type) {
  const Sample::Tensor tensor = {{2, 3}, type};
  return SampleOf(SoftmaxBackwardCall<Sample::Tensor>{
      .grad_input = tensor, .grad_output = tensor, .output = tensor, .dim = 1});
}

}  // namespace

constinit const FamilyDescriptor kSoftmaxFamily = Described<SoftmaxCall>(
    {.name = "softmax", .title = "softmax", .check = Check, .infer = Infer, .sample = MakeSample});
constinit const FamilyDescriptor kSoftmaxBackwardFamily =
    Described<SoftmaxBackwardCall>({.name = "softmax_backward",
                                    .title = "softmax, backward",
                                    .check = CheckBackward,
                                    .infer = InferBackward,
                                    .sample = MakeBackwardSample});

}  // namespace xpud::ops
