#include "proto/ops/families/fused.h"

#include <span>

#include "proto/base/status_macros.h"
#include "proto/ops/operand_lists.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

absl::Status NeedScalar(const Operand& operand, const char* role, DTypeSet types) {
  RETURN_IF_ERROR(NeedType(operand, role, types));
  return operand.numel() == 1 ? absl::OkStatus() : Invalid("a scalar of an optimizer has several elements");
}

// Checks the lengths of the lists that follow each other from `first`: each as long as self, or empty if it
// may be.
absl::Status NeedLengths(const OperandLists& lists, size_t first, std::span<const Parameter> parameters) {
  for (size_t k = 0; k < parameters.size(); ++k) {
    const size_t length = lists.length(first + k);
    if (length != lists.size() && !(length == 0 && parameters[k].is(kOptional)))
      return Invalid("the lengths of its tensor lists do not correspond");
  }
  return absl::OkStatus();
}

// Checks the tensors of list `list`, if it has any: sizes and types of self.
absl::Status NeedLikeSelf(const OperandLists& lists, size_t list) {
  for (size_t i = 0; i < lists.length(list); ++i) {
    RETURN_IF_ERROR(NeedSameSizes(lists.At(list, i), lists.At(0, i), "tensor of an optimizer"));
    RETURN_IF_ERROR(NeedSameType(lists.At(list, i), "tensor of an optimizer", lists.At(0, 0).dtype));
  }
  return absl::OkStatus();
}

absl::Status Check(const Call& call) {
  const FamilyDescriptor& family = DescriptorOf(*call.row);
  const OperandLists lists(call);
  const size_t grads = family.outputs.size(), scalars = lists.lists() - 3;  // lr, grad_scale, found_inf
  RETURN_IF_ERROR(NeedLengths(lists, 0, family.outputs));
  RETURN_IF_ERROR(NeedLengths(lists, grads, family.inputs.first(scalars - grads)));
  for (size_t list = 0; list <= grads; ++list) RETURN_IF_ERROR(NeedLikeSelf(lists, list));
  for (size_t list = grads + 1; list < scalars; ++list) {
    for (size_t i = 0; i < lists.size(); ++i)
      RETURN_IF_ERROR(NeedScalar(lists.At(list, i), "state_steps", SetOf(DType::kFloat32)));
  }
  for (size_t list = scalars; list < lists.lists(); ++list) {
    if (lists.length(list) > 1) return Invalid("a scalar of an optimizer is a list");
    const DTypeSet types = SetOf(DType::kFloat32) | (list == scalars ? SetOf(DType::kFloat64) : 0);
    if (lists.length(list) == 1)
      RETURN_IF_ERROR(NeedScalar(lists.At(list, 0), "scalar of an optimizer", types));
  }
  const bool unscales = lists.length(grads - 1) > 0, scaled = lists.length(scalars + 1) > 0;
  return unscales == scaled ? absl::OkStatus() : Invalid("unscaled gradients need grad_scale, and it them");
}

absl::Status CheckUnscale(const Call& call) {
  const OperandLists lists(call);
  if (lists.length(1) != 1 || lists.length(2) != 1)
    return Invalid("found_inf and inv_scale must be one tensor each");
  RETURN_IF_ERROR(NeedScalar(lists.At(1, 0), "found_inf", SetOf(DType::kFloat32)));
  RETURN_IF_ERROR(NeedScalar(lists.At(2, 0), "inv_scale", SetOf(DType::kFloat32)));
  for (size_t i = 0; i < lists.size(); ++i)
    RETURN_IF_ERROR(NeedType(lists.At(0, i), "gradient", kFloatTypes));
  return absl::OkStatus();
}

// A call with all lists, of one element.
Sample SampleOfStep(const FamilyDescriptor& family, DType type) {
  Sample sample;
  sample.outputs.assign(family.outputs.size(), {{2, 3}, type});
  sample.inputs.assign(family.inputs.size(), {{}, DType::kFloat32});
  sample.inputs[0] = {{2, 3}, type};
  for (const Attribute& attribute : family.attributes)
    sample.attributes.push_back(IsReal(attribute.type) ? Number::Real(0.5) : Number::Integer(0));
  sample.lists.assign(family.lists, 1);
  return sample;
}

}  // namespace

constinit const FamilyDescriptor kFusedAdamFamily = Described<FusedAdamCall>(
    {.name = "fused_adam",
     .title = "optimizers: Adam",
     .needs_dense = true,
     .lists_correspond = true,
     .check = Check,
     .sample = [](const Row&, DType type) { return SampleOfStep(kFusedAdamFamily, type); }});
constinit const FamilyDescriptor kFusedSgdFamily = Described<FusedSgdCall>(
    {.name = "fused_sgd",
     .title = "optimizers: SGD",
     .needs_dense = true,
     .lists_correspond = true,
     .check = Check,
     .sample = [](const Row&, DType type) { return SampleOfStep(kFusedSgdFamily, type); }});
constinit const FamilyDescriptor kFusedAdagradFamily = Described<FusedAdagradCall>(
    {.name = "fused_adagrad",
     .title = "optimizers: Adagrad",
     .needs_dense = true,
     .lists_correspond = true,
     .check = Check,
     .sample = [](const Row&, DType type) { return SampleOfStep(kFusedAdagradFamily, type); }});
constinit const FamilyDescriptor kUnscaleFamily = Described<UnscaleCall>(
    {.name = "unscale",
     .title = "gradient scaling",
     .needs_dense = true,
     .check = CheckUnscale,
     .sample = [](const Row&, DType type) -> Sample {
       return {{{{2, 3}, type}, {{2}, type}, {{}, DType::kFloat32}}, {{{}, DType::kFloat32}}, {}, {2, 1, 1}};
     }});

}  // namespace xpud::ops
