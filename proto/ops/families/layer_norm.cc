// Layer norm over the last dimension: out[M,N], mean[M], rstd[M] <- input[M,N], weight?[N], bias?[N]; and its
// gradients: grad_input[M,N], grad_weight[N], grad_bias[N] <- grad_out[M,N], input[M,N], mean[M], rstd[M],
// weight?[N].
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr Parameter kOutputs[] = {{"out"}, {"mean"}, {"rstd"}};
constexpr Parameter kInputs[] = {{"input"}, {"weight", kOptional}, {"bias", kOptional}};
constexpr Attribute kEps[] = {{"eps", AttributeType::kReal}};
constexpr Parameter kGradients[] = {{"grad_input"}, {"grad_weight"}, {"grad_bias"}};
constexpr Parameter kBackwardInputs[] = {{"grad_out"}, {"input"}, {"mean"}, {"rstd"}, {"weight", kOptional}};

// The type of means and deviations.
DType StatisticsOf(DType type) { return SizeOf(type) == 2 ? DType::kFloat32 : type; }

absl::Status Check(const Call& call) {
  const Operand& x = call.inputs[0];
  RETURN_IF_ERROR(NeedRank(x, "input", 2));
  RETURN_IF_ERROR(NeedSameSizes(call.outputs[0], x, "output"));
  RETURN_IF_ERROR(NeedSizes(call.outputs[1], "mean", {x.sizes[0]}));
  RETURN_IF_ERROR(NeedSizes(call.outputs[2], "rstd", {x.sizes[0]}));
  if (call.inputs[1].present) RETURN_IF_ERROR(NeedSizes(call.inputs[1], "weight", {x.sizes[1]}));
  if (call.inputs[2].present) RETURN_IF_ERROR(NeedSizes(call.inputs[2], "bias", {x.sizes[1]}));
  return absl::OkStatus();
}

absl::Status Infer(const Call& call, std::span<Operand> outputs) {
  const Operand& x = call.inputs[0];
  RETURN_IF_ERROR(NeedRank(x, "input", 2));
  SetOutputLike(outputs[0], x);
  for (Operand& out : outputs.subspan(1)) SetOutput(out, StatisticsOf(x.dtype), {x.sizes[0]});
  return absl::OkStatus();
}

absl::Status CheckBackward(const Call& call) {
  const Operand& x = call.inputs[1];
  RETURN_IF_ERROR(NeedRank(x, "input", 2));
  RETURN_IF_ERROR(NeedSameSizes(call.inputs[0], x, "gradient"));
  RETURN_IF_ERROR(NeedSizes(call.inputs[2], "mean", {x.sizes[0]}));
  RETURN_IF_ERROR(NeedSizes(call.inputs[3], "rstd", {x.sizes[0]}));
  if (call.inputs[4].present) RETURN_IF_ERROR(NeedSizes(call.inputs[4], "weight", {x.sizes[1]}));
  RETURN_IF_ERROR(NeedSameSizes(call.outputs[0], x, "output"));
  RETURN_IF_ERROR(NeedSizes(call.outputs[1], "weight gradient", {x.sizes[1]}));
  return NeedSizes(call.outputs[2], "bias gradient", {x.sizes[1]});
}

absl::Status InferBackward(const Call& call, std::span<Operand> outputs) {
  const Operand& x = call.inputs[1];
  RETURN_IF_ERROR(NeedRank(x, "input", 2));
  SetOutputLike(outputs[0], x);
  for (Operand& out : outputs.subspan(1)) SetOutput(out, x.dtype, {x.sizes[1]});
  return absl::OkStatus();
}

Sample MakeSample(const Row&, DType type) {
  return {.outputs = {{{2, 3}, type}, {{2}, type}, {{2}, type}},
          .inputs = {{{2, 3}, type}, {{3}, type}, {{3}, type}},
          .attributes = {Number::Real(1e-5)}};
}

Sample MakeBackwardSample(const Row&, DType type) {
  return {.outputs = {{{2, 3}, type}, {{3}, type}, {{3}, type}},
          .inputs = {{{2, 3}, type}, {{2, 3}, type}, {{2}, type}, {{2}, type}, {{3}, type}},
          .attributes = {}};
}

}  // namespace

constinit const FamilyDescriptor kLayerNormFamily = {.name = "layer_norm",
                                                     .title = "layer norm",
                                                     .outputs = kOutputs,
                                                     .inputs = kInputs,
                                                     .attributes = kEps,
                                                     .needs_dense = true,
                                                     .check = Check,
                                                     .infer = Infer,
                                                     .sample = MakeSample};
constinit const FamilyDescriptor kLayerNormBackwardFamily = {.name = "layer_norm_backward",
                                                             .title = "layer norm, backward",
                                                             .outputs = kGradients,
                                                             .inputs = kBackwardInputs,
                                                             .needs_dense = true,
                                                             .check = CheckBackward,
                                                             .infer = InferBackward,
                                                             .sample = MakeBackwardSample};

}  // namespace xpud::ops
