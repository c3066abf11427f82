#include "proto/ops/families/layer_norm.h"

#include "proto/base/status_macros.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

// The type of means and deviations.
DType StatisticsOf(DType type) { return SizeOf(type) == 2 ? DType::kFloat32 : type; }

// Statistics are outputs, or inputs of the gradients; parameters are weight and bias, or their gradients.
absl::Status NeedStatistics(std::initializer_list<Given> operands, const Operand& x) {
  for (const Given operand : operands) RETURN_IF_ERROR(NeedSizes(*operand, "statistics", {x.sizes[0]}));
  return absl::OkStatus();
}
absl::Status NeedParameters(std::initializer_list<Given> operands, const Operand& x) {
  for (const Given operand : operands)
    if (operand->present) RETURN_IF_ERROR(NeedSizes(*operand, "parameter", {x.sizes[1]}));
  return absl::OkStatus();
}

// ---- layer norm

absl::Status Check(const Call& call) {
  const auto norm = Read<LayerNormCall>(call);
  const Operand& x = *norm.input;
  RETURN_IF_ERROR(NeedRank(x, "input", 2));
  RETURN_IF_ERROR(NeedSameSizes(*norm.out, x, "output"));
  RETURN_IF_ERROR(NeedStatistics({norm.mean, norm.rstd}, x));
  return NeedParameters({norm.weight, norm.bias}, x);
}

absl::Status Infer(const Call& call, std::span<Operand> outputs) {
  const Operand& x = *Read<LayerNormCall>(call).input;
  const auto to = Outputs<LayerNormCall>(outputs);
  RETURN_IF_ERROR(NeedRank(x, "input", 2));
  SetOutputLike(*to.out, x);
  SetOutput(*to.mean, StatisticsOf(x.dtype), {x.sizes[0]});
  SetOutput(*to.rstd, StatisticsOf(x.dtype), {x.sizes[0]});
  return absl::OkStatus();
}

absl::Status CheckBackward(const Call& call) {
  const auto norm = Read<LayerNormBackwardCall>(call);
  const Operand& x = *norm.input;
  RETURN_IF_ERROR(NeedRank(x, "input", 2));
  RETURN_IF_ERROR(NeedSameSizes(*norm.grad_out, x, "gradient"));
  RETURN_IF_ERROR(NeedStatistics({norm.mean, norm.rstd}, x));
  RETURN_IF_ERROR(NeedSameSizes(*norm.grad_input, x, "output"));
  return NeedParameters({norm.weight, norm.grad_weight, norm.grad_bias}, x);
}

absl::Status InferBackward(const Call& call, std::span<Operand> outputs) {
  const Operand& x = *Read<LayerNormBackwardCall>(call).input;
  const auto to = Outputs<LayerNormBackwardCall>(outputs);
  RETURN_IF_ERROR(NeedRank(x, "input", 2));
  SetOutputLike(*to.grad_input, x);
  SetOutput(*to.grad_weight, x.dtype, {x.sizes[1]});
  SetOutput(*to.grad_bias, x.dtype, {x.sizes[1]});
  return absl::OkStatus();
}

Sample MakeSample(const Row&, DType type) {
  const Sample::Tensor matrix = {{2, 3}, type}, rows = {{2}, type}, columns = {{3}, type};
  return SampleOf(LayerNormCall<Sample::Tensor>{.out = matrix,
                                                .mean = rows,
                                                .rstd = rows,
                                                .input = matrix,
                                                .weight = columns,
                                                .bias = columns,
                                                .eps = 1e-5});
}

Sample MakeBackwardSample(const Row&, DType type) {
  const Sample::Tensor matrix = {{2, 3}, type}, rows = {{2}, type}, columns = {{3}, type};
  return SampleOf(LayerNormBackwardCall<Sample::Tensor>{.grad_input = matrix,
                                                        .grad_weight = columns,
                                                        .grad_bias = columns,
                                                        .grad_out = matrix,
                                                        .input = matrix,
                                                        .mean = rows,
                                                        .rstd = rows,
                                                        .weight = columns});
}

// ---- RMS norm

absl::Status CheckRms(const Call& call) {
  const auto norm = Read<RmsNormCall>(call);
  const Operand& x = *norm.input;
  RETURN_IF_ERROR(NeedRank(x, "input", 2));
  RETURN_IF_ERROR(NeedSameSizes(*norm.out, x, "output"));
  RETURN_IF_ERROR(NeedStatistics({norm.rstd}, x));
  return NeedParameters({norm.weight}, x);
}

absl::Status InferRms(const Call& call, std::span<Operand> outputs) {
  const Operand& x = *Read<RmsNormCall>(call).input;
  const auto to = Outputs<RmsNormCall>(outputs);
  RETURN_IF_ERROR(NeedRank(x, "input", 2));
  SetOutputLike(*to.out, x);
  SetOutput(*to.rstd, StatisticsOf(x.dtype), {x.sizes[0]});
  return absl::OkStatus();
}

absl::Status CheckRmsBackward(const Call& call) {
  const auto norm = Read<RmsNormBackwardCall>(call);
  const Operand& x = *norm.input;
  RETURN_IF_ERROR(NeedRank(x, "input", 2));
  RETURN_IF_ERROR(NeedSameSizes(*norm.grad_out, x, "gradient"));
  RETURN_IF_ERROR(NeedStatistics({norm.rstd}, x));
  RETURN_IF_ERROR(NeedSameSizes(*norm.grad_input, x, "output"));
  return NeedParameters({norm.weight, norm.grad_weight}, x);
}

absl::Status InferRmsBackward(const Call& call, std::span<Operand> outputs) {
  const Operand& x = *Read<RmsNormBackwardCall>(call).input;
  const auto to = Outputs<RmsNormBackwardCall>(outputs);
  RETURN_IF_ERROR(NeedRank(x, "input", 2));
  SetOutputLike(*to.grad_input, x);
  SetOutput(*to.grad_weight, x.dtype, {x.sizes[1]});
  return absl::OkStatus();
}

Sample MakeRmsSample(const Row&, DType type) {
  const Sample::Tensor matrix = {{2, 3}, type};
  return SampleOf(RmsNormCall<Sample::Tensor>{
      .out = matrix, .rstd = {{2}, type}, .input = matrix, .weight = {{3}, type}, .eps = 1e-5});
}

Sample MakeRmsBackwardSample(const Row&, DType type) {
  const Sample::Tensor matrix = {{2, 3}, type}, columns = {{3}, type};
  return SampleOf(RmsNormBackwardCall<Sample::Tensor>{.grad_input = matrix,
                                                      .grad_weight = columns,
                                                      .grad_out = matrix,
                                                      .input = matrix,
                                                      .rstd = {{2}, type},
                                                      .weight = columns});
}

}  // namespace

constinit const FamilyDescriptor kLayerNormFamily = Described<LayerNormCall>({.name = "layer_norm",
                                                                              .title = "layer norm",
                                                                              .needs_dense = true,
                                                                              .check = Check,
                                                                              .infer = Infer,
                                                                              .sample = MakeSample});
constinit const FamilyDescriptor kLayerNormBackwardFamily =
    Described<LayerNormBackwardCall>({.name = "layer_norm_backward",
                                      .title = "layer norm, backward",
                                      .needs_dense = true,
                                      .check = CheckBackward,
                                      .infer = InferBackward,
                                      .sample = MakeBackwardSample});
constinit const FamilyDescriptor kRmsNormFamily = Described<RmsNormCall>({.name = "rms_norm",
                                                                          .title = "RMS norm",
                                                                          .needs_dense = true,
                                                                          .check = CheckRms,
                                                                          .infer = InferRms,
                                                                          .sample = MakeRmsSample});
constinit const FamilyDescriptor kRmsNormBackwardFamily =
    Described<RmsNormBackwardCall>({.name = "rms_norm_backward",
                                    .title = "RMS norm, backward",
                                    .needs_dense = true,
                                    .check = CheckRmsBackward,
                                    .infer = InferRmsBackward,
                                    .sample = MakeRmsBackwardSample});

}  // namespace xpud::ops
