// Reductions: out[R] <- a[S], equal rank; R[d] is S[d] (kept) or 1 (reduced). The row's formula defines the
// reduction. A joint reduction has further inputs, which broadcast to a.
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr Attribute kAttributes[] = {{.name = "attribute", .type = AttributeType::kReal, .required = false}};

absl::Status Check(const Call& call) {
  const Operand& a = call.inputs[0];
  for (const Operand& out : call.outputs) {
    RETURN_IF_ERROR(NeedRank(out, "output", a.rank));
    for (int d = 0; d < a.rank; ++d) {
      if (out.sizes[d] == a.sizes[d] || out.sizes[d] == 1) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("output ", Describe(out), " is not a reduction of ", Describe(a)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckJoint(const Call& call) {
  for (const Operand& input : call.inputs.subspan(1)) {
    RETURN_IF_ERROR(NeedTensor(input, "input"));
    RETURN_IF_ERROR(NeedBroadcastTo(input, call.inputs[0], "input"));
  }
  return Check(call);
}

Sample MakeJointSample(const Row& row, DType type) {
  Sample sample;
  sample.outputs.assign(row.outputs, {{2, 1}, type});
  sample.inputs.assign(row.inputs, {{2, 3}, type});
  return sample;
}

Sample MakeSample(const Row& row, DType type) {
  const DType out = row.types == TypeRule::kIndex  ? DType::kInt64
                    : row.types == TypeRule::kBool ? DType::kBool
                                                   : type;
  Sample sample = {.outputs = {}, .inputs = {{{2, 3}, type}}, .attributes = {Number::Real(1)}};
  sample.outputs.assign(row.outputs, {{2, 1}, out});
  return sample;
}

}  // namespace

constinit const FamilyDescriptor kReduceFamily = {
    .name = "reduce", .title = "reductions", .attributes = kAttributes, .check = Check, .sample = MakeSample};
constinit const FamilyDescriptor kJointReduceFamily = {.name = "joint_reduce",
                                                       .title = "reductions of several tensors",
                                                       .check = CheckJoint,
                                                       .sample = MakeJointSample};

}  // namespace xpud::ops
