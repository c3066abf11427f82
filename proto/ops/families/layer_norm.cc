// Layer norm over the last dimension: out[M,N], mean[M], rstd[M] <- input[M,N], weight?[N], bias?[N]; and its
// gradients: grad_input[M,N], grad_weight[N], grad_bias[N] <- grad_out[M,N], input[M,N], mean[M], rstd[M],
// weight?[N]. RMS norm is the same with a mean of 0 and without a bias: rstd is the reciprocal of the root of
// the mean square.
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr Parameter kOutputs[] = {{"out"}, {"mean"}, {"rstd"}};
constexpr Parameter kInputs[] = {{"input"}, {"weight", kOptional}, {"bias", kOptional}};
constexpr Attribute kEps[] = {{"eps", AttributeType::kReal}};
constexpr Parameter kRmsOutputs[] = {{"out"}, {"rstd"}};
constexpr Parameter kRmsInputs[] = {{"input"}, {"weight", kOptional}};
constexpr Parameter kRmsGradients[] = {{"grad_input"}, {"grad_weight"}};
constexpr Parameter kRmsBackwardInputs[] = {{"grad_out"}, {"input"}, {"rstd"}, {"weight", kOptional}};
constexpr Parameter kGradients[] = {{"grad_input"}, {"grad_weight"}, {"grad_bias"}};
constexpr Parameter kBackwardInputs[] = {{"grad_out"}, {"input"}, {"mean"}, {"rstd"}, {"weight", kOptional}};

// The type of means and deviations.
DType StatisticsOf(DType type) { return SizeOf(type) == 2 ? DType::kFloat32 : type; }

// Statistics are outputs, or inputs of the gradients; parameters are weight and bias, or their gradients.
absl::Status NeedStatistics(std::span<const Operand> operands, const Operand& x) {
  for (const Operand& operand : operands) RETURN_IF_ERROR(NeedSizes(operand, "statistics", {x.sizes[0]}));
  return absl::OkStatus();
}
absl::Status NeedParameters(std::span<const Operand> operands, const Operand& x) {
  for (const Operand& operand : operands)
    if (operand.present) RETURN_IF_ERROR(NeedSizes(operand, "parameter", {x.sizes[1]}));
  return absl::OkStatus();
}

absl::Status Check(const Call& call) {
  const Operand& x = call.inputs[0];
  RETURN_IF_ERROR(NeedRank(x, "input", 2));
  RETURN_IF_ERROR(NeedSameSizes(call.outputs[0], x, "output"));
  RETURN_IF_ERROR(NeedStatistics(call.outputs.subspan(1), x));
  return NeedParameters(call.inputs.subspan(1), x);
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
  const size_t last = call.inputs.size() - 1;
  RETURN_IF_ERROR(NeedStatistics(call.inputs.subspan(2, last - 2), x));
  RETURN_IF_ERROR(NeedParameters(call.inputs.subspan(last), x));
  RETURN_IF_ERROR(NeedSameSizes(call.outputs[0], x, "output"));
  return NeedParameters(call.outputs.subspan(1), x);
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

Sample MakeRmsSample(const Row& row, DType type) {
  Sample sample = MakeSample(row, type);
  sample.outputs.pop_back();
  sample.inputs.pop_back();
  return sample;
}

Sample MakeRmsBackwardSample(const Row& row, DType type) {
  Sample sample = MakeBackwardSample(row, type);
  sample.outputs.pop_back();
  sample.inputs.erase(sample.inputs.begin() + 2);
  return sample;
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
constinit const FamilyDescriptor kRmsNormFamily = {.name = "rms_norm",
                                                   .title = "RMS norm",
                                                   .outputs = kRmsOutputs,
                                                   .inputs = kRmsInputs,
                                                   .attributes = kEps,
                                                   .needs_dense = true,
                                                   .check = Check,
                                                   .infer = Infer,
                                                   .sample = MakeRmsSample};
constinit const FamilyDescriptor kRmsNormBackwardFamily = {.name = "rms_norm_backward",
                                                           .title = "RMS norm, backward",
                                                           .outputs = kRmsGradients,
                                                           .inputs = kRmsBackwardInputs,
                                                           .needs_dense = true,
                                                           .check = CheckBackward,
                                                           .infer = InferBackward,
                                                           .sample = MakeRmsBackwardSample};

}  // namespace xpud::ops
