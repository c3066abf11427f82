#include "proto/ops/families/nll_loss.h"

#include "proto/base/status_macros.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

// The shape of targets for scores `self`.
Operand EachOf(const Call& call, const Operand& self) {
  Operand each;
  each.dtype = self.dtype;
  each.rank = call.row->formula == "planes" ? 2 : 1;
  each.sizes[0] = self.sizes[0];
  each.sizes[1] = each.rank == 2 ? self.sizes[2] : 0;
  return each;
}

// Checks what both directions have; `loss` is the loss or its gradient.
template <typename Loss>
absl::Status CheckLoss(const Call& call, const Loss& nll, const Operand& loss) {
  const Operand &self = *nll.self, &weight = *nll.weight;
  const Operand each = EachOf(call, self);
  RETURN_IF_ERROR(NeedRank(self, "input", each.rank + 1));
  RETURN_IF_ERROR(NeedSameSizes(*nll.target, each, "target"));
  if (weight.present) {
    RETURN_IF_ERROR(NeedSizes(weight, "weight", {self.sizes[1]}));
    RETURN_IF_ERROR(NeedSameType(weight, "weight", self.dtype));
  }
  const bool none = nll.attributes.reduction == 0;
  RETURN_IF_ERROR(none ? NeedSameSizes(loss, each, "loss") : NeedSizes(loss, "loss", {}));
  return NeedSameType(loss, "loss", self.dtype);
}

absl::Status Check(const Call& call) {
  const auto nll = Read<NllLossCall>(call);
  RETURN_IF_ERROR(CheckLoss(call, nll, *nll.out));
  return NeedSizes(*nll.total_weight, "total weight", {});
}

absl::Status CheckBackward(const Call& call) {
  const auto nll = Read<NllLossBackwardCall>(call);
  RETURN_IF_ERROR(CheckLoss(call, nll, *nll.grad_output));
  return NeedSameSizes(*nll.grad_input, *nll.self, "output");
}

absl::Status Infer(const Call& call, std::span<Operand> outputs) {
  const auto nll = Read<NllLossCall>(call);
  const auto to = Outputs<NllLossCall>(outputs);
  const Operand& self = *nll.self;
  const Operand each = EachOf(call, self);
  RETURN_IF_ERROR(NeedRank(self, "input", each.rank + 1));
  if (nll.attributes.reduction == 0) {
    SetOutputLike(*to.out, each);
  } else {
    SetOutput(*to.out, self.dtype, {});
  }
  SetOutput(*to.total_weight, self.dtype, {});
  return absl::OkStatus();
}

absl::Status InferBackward(const Call& call, std::span<Operand> outputs) {
  SetOutputLike(*Outputs<NllLossBackwardCall>(outputs).grad_input, *Read<NllLossBackwardCall>(call).self);
  return absl::OkStatus();
}

std::vector<int64_t> SampleSizes(const Row& row) {
  return row.formula == "planes" ? std::vector<int64_t>{2, 3, 4} : std::vector<int64_t>{2, 3};
}
std::vector<int64_t> SampleTargets(const Row& row) {
  return row.formula == "planes" ? std::vector<int64_t>{2, 4} : std::vector<int64_t>{2};
}

constexpr NllLossAttributes kSampleAttributes = {.reduction = 1, .ignore_index = -100};

Sample MakeSample(const Row& row, DType type) {
  return SampleOf(NllLossCall<Sample::Tensor>{.out = {{}, type},
                                              .total_weight = {{}, type},
                                              .self = {SampleSizes(row), type},
                                              .target = {SampleTargets(row), DType::kInt64},
                                              .weight = {{3}, type},
                                              .attributes = kSampleAttributes});
}

Sample MakeBackwardSample(const Row& row, DType type) {
  return SampleOf(NllLossBackwardCall<Sample::Tensor>{.grad_input = {SampleSizes(row), type},
                                                      .grad_output = {{}, type},
                                                      .self = {SampleSizes(row), type},
                                                      .target = {SampleTargets(row), DType::kInt64},
                                                      .weight = {{3}, type},
                                                      .attributes = kSampleAttributes});
}

}  // namespace

constinit const FamilyDescriptor kNllLossFamily = Described<NllLossCall>(
    {.name = "nll_loss",
     .title = "loss",
     .check = Check,
     .infer = Infer,
     .index_limit = [](const Call& call) { return Read<NllLossCall>(call).self->sizes[1]; },
     .sample = MakeSample});
constinit const FamilyDescriptor kNllLossBackwardFamily = Described<NllLossBackwardCall>(
    {.name = "nll_loss_backward",
     .title = "loss, backward",
     .check = CheckBackward,
     .infer = InferBackward,
     .index_limit = [](const Call& call) { return Read<NllLossBackwardCall>(call).self->sizes[1]; },
     .sample = MakeBackwardSample});

}  // namespace xpud::ops
