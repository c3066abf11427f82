#include "proto/ops/families/ctc_loss.h"

#include "proto/base/status_macros.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

// Checks the operands that both directions have.
template <typename Loss>
absl::Status CheckShared(const Loss& ctc) {
  const Operand &probs = *ctc.log_probs, &targets = *ctc.targets, &shapes = *ctc.shapes, &loss = *ctc.loss,
                &alpha = *ctc.log_alpha;
  for (const Given operand : {&probs, &targets, &shapes, &loss, &alpha})
    RETURN_IF_ERROR(NeedTensor(*operand, "operand"));
  RETURN_IF_ERROR(NeedRank(probs, "log_probs", 3));
  RETURN_IF_ERROR(NeedRank(targets, "targets", 1));
  RETURN_IF_ERROR(NeedType(targets, "targets", kIndexTypes));
  RETURN_IF_ERROR(NeedSizes(shapes, "shapes", {probs.sizes[1], 3}));
  RETURN_IF_ERROR(NeedSameType(shapes, "shapes", DType::kInt64));
  RETURN_IF_ERROR(NeedSizes(loss, "loss", {probs.sizes[1]}));
  RETURN_IF_ERROR(NeedRank(alpha, "log_alpha", 3));
  RETURN_IF_ERROR(NeedSizes(alpha, "log_alpha", {probs.sizes[1], probs.sizes[0], alpha.sizes[2]}));
  RETURN_IF_ERROR(NeedSameType(loss, "loss", probs.dtype));
  RETURN_IF_ERROR(NeedSameType(alpha, "log_alpha", probs.dtype));
  if (ctc.blank < 0 || ctc.blank >= probs.sizes[2]) return Invalid("the blank is not a class");
  return alpha.sizes[2] < 1 ? Invalid("log_alpha has no states") : absl::OkStatus();
}

absl::Status Check(const Call& call) { return CheckShared(Read<CtcLossCall>(call)); }

absl::Status CheckBackward(const Call& call) {
  const auto ctc = Read<CtcLossBackwardCall>(call);
  RETURN_IF_ERROR(CheckShared(ctc));
  const Operand& probs = *ctc.log_probs;
  RETURN_IF_ERROR(NeedSameSizes(*ctc.grad_output, *ctc.loss, "gradient"));
  RETURN_IF_ERROR(NeedSameType(*ctc.grad_output, "gradient", probs.dtype));
  RETURN_IF_ERROR(NeedSameType(*ctc.grad_input, "output", probs.dtype));
  return NeedSameSizes(*ctc.grad_input, probs, "output");
}

// States of all steps, each of which takes logarithms; the gradient also goes through all classes.
template <typename Loss>
double CostOf(const Loss& ctc, double passes) {
  const Operand &probs = *ctc.log_probs, &alpha = *ctc.log_alpha;
  const double steps = static_cast<double>(probs.sizes[0]) * static_cast<double>(probs.sizes[1]);
  return steps * passes * (16 * static_cast<double>(alpha.sizes[2]) + static_cast<double>(probs.sizes[2])) +
         static_cast<double>(probs.sizes[1]);
}

Sample MakeSample(const Row&, DType type) {
  return SampleOf(CtcLossCall<Sample::Tensor>{.loss = {{2}, type},
                                              .log_alpha = {{2, 4, 5}, type},
                                              .log_probs = {{4, 2, 3}, type},
                                              .targets = {{4}, DType::kInt64},
                                              .shapes = {{2, 3}, DType::kInt64}});
}

Sample MakeBackwardSample(const Row&, DType type) {
  return SampleOf(CtcLossBackwardCall<Sample::Tensor>{.grad_input = {{4, 2, 3}, type},
                                                      .grad_output = {{2}, type},
                                                      .log_probs = {{4, 2, 3}, type},
                                                      .targets = {{4}, DType::kInt64},
                                                      .shapes = {{2, 3}, DType::kInt64},
                                                      .loss = {{2}, type},
                                                      .log_alpha = {{2, 4, 5}, type},
                                                      .zero_infinity = true});
}

}  // namespace

constinit const FamilyDescriptor kCtcLossFamily =
    Described<CtcLossCall>({.name = "ctc_loss",
                            .title = "temporal classification",
                            .needs_dense = true,
                            .check = Check,
                            .cost = [](const Call& call) { return CostOf(Read<CtcLossCall>(call), 1); },
                            .sample = MakeSample});
constinit const FamilyDescriptor kCtcLossBackwardFamily = Described<CtcLossBackwardCall>(
    {.name = "ctc_loss_backward",
     .title = "temporal classification, backward",
     .typed_input = 1,
     .needs_dense = true,
     .check = CheckBackward,
     .cost = [](const Call& call) { return CostOf(Read<CtcLossBackwardCall>(call), 2); },
     .sample = MakeBackwardSample});

}  // namespace xpud::ops
