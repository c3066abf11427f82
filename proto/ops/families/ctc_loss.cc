// Connectionist temporal classification (Graves et al. 2006): loss[N], log_alpha[N,T,W] <- log_probs[T,N,C],
// targets[L], shapes[N,3]; and its gradient: grad_input[T,N,C] <- grad_output[N], log_probs, targets, shapes,
// loss, log_alpha. A row of shapes has the length of a sequence, the number of its labels, and the position
// of its first label in targets. Lengths are cut to T, to (W - 1) / 2 and to L. A label that is not a class
// or lies outside targets is impossible: its probability is 0.
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr Parameter kOutputs[] = {{"loss"}, {"log_alpha"}};
constexpr Parameter kInputs[] = {{"log_probs"}, {"targets"}, {"shapes"}};
constexpr Parameter kGradient[] = {{"grad_input"}};
constexpr Parameter kBackwardInputs[] = {{"grad_output"}, {"log_probs"}, {"targets"},
                                         {"shapes"},      {"loss"},      {"log_alpha"}};
constexpr Attribute kBlank[] = {{"blank", AttributeType::kInteger}};
constexpr Attribute kBackwardAttributes[] = {{"blank", AttributeType::kInteger},
                                             {"zero_infinity", AttributeType::kBool}};

// Checks the inputs that both directions have; `inputs` begins with log_probs.
absl::Status CheckInputs(const Call& call, std::span<const Operand> inputs, const Operand& loss,
                         const Operand& alpha) {
  const Operand &probs = inputs[0], &targets = inputs[1], &shapes = inputs[2];
  for (const Operand* const operand : {&probs, &targets, &shapes, &loss, &alpha})
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
  const int64_t blank = call.attributes[0].AsInteger();
  if (blank < 0 || blank >= probs.sizes[2]) return Invalid("the blank is not a class");
  return alpha.sizes[2] < 1 ? Invalid("log_alpha has no states") : absl::OkStatus();
}

absl::Status Check(const Call& call) {
  return CheckInputs(call, call.inputs, call.outputs[0], call.outputs[1]);
}

absl::Status CheckBackward(const Call& call) {
  RETURN_IF_ERROR(CheckInputs(call, call.inputs.subspan(1), call.inputs[4], call.inputs[5]));
  const Operand& probs = call.inputs[1];
  RETURN_IF_ERROR(NeedSameSizes(call.inputs[0], call.inputs[4], "gradient"));
  RETURN_IF_ERROR(NeedSameType(call.inputs[0], "gradient", probs.dtype));
  RETURN_IF_ERROR(NeedSameType(call.outputs[0], "output", probs.dtype));
  return NeedSameSizes(call.outputs[0], probs, "output");
}

// States of all steps, each of which takes logarithms; the gradient also goes through all classes.
double CostOf(const Operand& probs, const Operand& alpha, double passes) {
  const double steps = static_cast<double>(probs.sizes[0]) * static_cast<double>(probs.sizes[1]);
  return steps * passes * (16 * static_cast<double>(alpha.sizes[2]) + static_cast<double>(probs.sizes[2])) +
         static_cast<double>(probs.sizes[1]);
}

Sample MakeSample(const Row&, DType type) {
  return {.outputs = {{{2}, type}, {{2, 4, 5}, type}},
          .inputs = {{{4, 2, 3}, type}, {{4}, DType::kInt64}, {{2, 3}, DType::kInt64}},
          .attributes = {Number::Integer(0)}};
}

Sample MakeBackwardSample(const Row&, DType type) {
  return {.outputs = {{{4, 2, 3}, type}},
          .inputs = {{{2}, type},
                     {{4, 2, 3}, type},
                     {{4}, DType::kInt64},
                     {{2, 3}, DType::kInt64},
                     {{2}, type},
                     {{2, 4, 5}, type}},
          .attributes = {Number::Integer(0), Number::Integer(1)}};
}

}  // namespace

constinit const FamilyDescriptor kCtcLossFamily = {
    .name = "ctc_loss",
    .title = "temporal classification",
    .outputs = kOutputs,
    .inputs = kInputs,
    .attributes = kBlank,
    .needs_dense = true,
    .check = Check,
    .cost = [](const Call& call) { return CostOf(call.inputs[0], call.outputs[1], 1); },
    .sample = MakeSample};
constinit const FamilyDescriptor kCtcLossBackwardFamily = {
    .name = "ctc_loss_backward",
    .title = "temporal classification, backward",
    .outputs = kGradient,
    .inputs = kBackwardInputs,
    .attributes = kBackwardAttributes,
    .typed_input = 1,
    .needs_dense = true,
    .check = CheckBackward,
    .cost = [](const Call& call) { return CostOf(call.inputs[1], call.inputs[5], 2); },
    .sample = MakeBackwardSample};

}  // namespace xpud::ops
