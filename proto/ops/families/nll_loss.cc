// Negative log likelihood: loss[N] or [], total_weight[] <- self[N,C], target[N], weight?[C]; and its
// gradient: grad_input[N,C] <- grad_output[N] or [], self[N,C], target[N], weight?[C]. (For a mean, backward
// recomputes the total weight from the targets.) Rows with formula "planes" take self[N,C,P], target[N,P] and
// loss[N,P]: a target for each position of an image. `reduction`: 0 none, 1 mean, 2 sum.
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr Parameter kOutputs[] = {{"out"}, {"total_weight"}};
constexpr Parameter kInputs[] = {{"self"}, {"target", kIndices}, {"weight", kOptional}};
constexpr Parameter kGradInput[] = {{"grad_input"}};
constexpr Parameter kBackwardInputs[] = {
    {"grad_output"}, {"self"}, {"target", kIndices}, {"weight", kOptional}};
constexpr Attribute kAttributes[] = {{"reduction", AttributeType::kInteger},
                                     {"ignore_index", AttributeType::kInteger}};

// The shape of targets for scores `self`.
Operand EachOf(const Call& call, const Operand& self) {
  Operand each;
  each.dtype = self.dtype;
  each.rank = call.row->formula == "planes" ? 2 : 1;
  each.sizes[0] = self.sizes[0];
  each.sizes[1] = each.rank == 2 ? self.sizes[2] : 0;
  return each;
}

// Checks the scores, targets and weights, which begin at input `at`, and the loss or its gradient.
absl::Status CheckLoss(const Call& call, size_t at, const Operand& loss) {
  const Operand &self = call.inputs[at], &target = call.inputs[at + 1], &weight = call.inputs[at + 2];
  const Operand each = EachOf(call, self);
  RETURN_IF_ERROR(NeedRank(self, "input", each.rank + 1));
  RETURN_IF_ERROR(NeedSameSizes(target, each, "target"));
  if (weight.present) {
    RETURN_IF_ERROR(NeedSizes(weight, "weight", {self.sizes[1]}));
    RETURN_IF_ERROR(NeedSameType(weight, "weight", self.dtype));
  }
  const bool none = call.attributes[0].AsInteger() == 0;
  RETURN_IF_ERROR(none ? NeedSameSizes(loss, each, "loss") : NeedSizes(loss, "loss", {}));
  return NeedSameType(loss, "loss", self.dtype);
}

absl::Status Check(const Call& call) {
  RETURN_IF_ERROR(CheckLoss(call, 0, call.outputs[0]));
  return NeedSizes(call.outputs[1], "total weight", {});
}

absl::Status CheckBackward(const Call& call) {
  RETURN_IF_ERROR(CheckLoss(call, 1, call.inputs[0]));
  return NeedSameSizes(call.outputs[0], call.inputs[1], "output");
}

absl::Status Infer(const Call& call, std::span<Operand> outputs) {
  const Operand& self = call.inputs[0];
  const Operand each = EachOf(call, self);
  RETURN_IF_ERROR(NeedRank(self, "input", each.rank + 1));
  if (call.attributes[0].AsInteger() == 0) {
    SetOutputLike(outputs[0], each);
  } else {
    SetOutput(outputs[0], self.dtype, {});
  }
  SetOutput(outputs[1], self.dtype, {});
  return absl::OkStatus();
}

absl::Status InferBackward(const Call& call, std::span<Operand> outputs) {
  SetOutputLike(outputs[0], call.inputs[1]);
  return absl::OkStatus();
}

std::vector<int64_t> SampleSizes(const Row& row) {
  return row.formula == "planes" ? std::vector<int64_t>{2, 3, 4} : std::vector<int64_t>{2, 3};
}
std::vector<int64_t> SampleTargets(const Row& row) {
  return row.formula == "planes" ? std::vector<int64_t>{2, 4} : std::vector<int64_t>{2};
}

Sample MakeSample(const Row& row, DType type) {
  return {.outputs = {{{}, type}, {{}, type}},
          .inputs = {{SampleSizes(row), type}, {SampleTargets(row), DType::kInt64}, {{3}, type}},
          .attributes = {Number::Integer(1), Number::Integer(-100)}};
}

Sample MakeBackwardSample(const Row& row, DType type) {
  return {.outputs = {{SampleSizes(row), type}},
          .inputs = {{{}, type}, {SampleSizes(row), type}, {SampleTargets(row), DType::kInt64}, {{3}, type}},
          .attributes = {Number::Integer(1), Number::Integer(-100)}};
}

}  // namespace

constinit const FamilyDescriptor kNllLossFamily = {
    .name = "nll_loss",
    .title = "loss",
    .outputs = kOutputs,
    .inputs = kInputs,
    .attributes = kAttributes,
    .check = Check,
    .infer = Infer,
    .index_limit = [](const Call& call) { return call.inputs[0].sizes[1]; },
    .sample = MakeSample};
constinit const FamilyDescriptor kNllLossBackwardFamily = {
    .name = "nll_loss_backward",
    .title = "loss, backward",
    .outputs = kGradInput,
    .inputs = kBackwardInputs,
    .attributes = kAttributes,
    .check = CheckBackward,
    .infer = InferBackward,
    .index_limit = [](const Call& call) { return call.inputs[1].sizes[1]; },
    .sample = MakeBackwardSample};

}  // namespace xpud::ops
