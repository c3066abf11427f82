// Attention: out[B,H,S,E], logsumexp?[B,H,S] f32 <- q[B,H,S,D], k[B,Hk,T,D], v[B,Hk,T,E], mask?[B,H,S,T]
// (strides 0 to broadcast; bool, or the query's type and added to scores). Hk divides H. `is_causal` is
// upper-left aligned. If a query may attend to no key, its out and logsumexp are 0.
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr Parameter kOutputs[] = {{"out"}, {"logsumexp", kOptional}};
constexpr Parameter kInputs[] = {{"query"}, {"key"}, {"value"}, {"mask", kOptional}};
constexpr Attribute kAttributes[] = {{"scale", AttributeType::kReal}, {"is_causal", AttributeType::kBool}};

absl::Status Check(const Call& call) {
  const Operand &q = call.inputs[0], &k = call.inputs[1], &v = call.inputs[2], &mask = call.inputs[3];
  RETURN_IF_ERROR(NeedRank(q, "query", 4));
  RETURN_IF_ERROR(NeedRank(k, "key", 4));
  RETURN_IF_ERROR(NeedRank(v, "value", 4));
  const int64_t batch = q.sizes[0], heads = q.sizes[1], queries = q.sizes[2], keys = k.sizes[2];
  if (k.sizes[1] == 0 || heads % k.sizes[1] != 0)
    return absl::InvalidArgumentError(
        absl::StrCat(heads, " query heads are not a multiple of ", k.sizes[1], " key heads"));
  RETURN_IF_ERROR(NeedSizes(k, "key", {batch, k.sizes[1], keys, q.sizes[3]}));
  RETURN_IF_ERROR(NeedSizes(v, "value", {batch, k.sizes[1], keys, v.sizes[3]}));
  RETURN_IF_ERROR(NeedSameType(k, "key", q.dtype));
  RETURN_IF_ERROR(NeedSameType(v, "value", q.dtype));
  RETURN_IF_ERROR(NeedSameType(call.outputs[0], "output", q.dtype));
  RETURN_IF_ERROR(NeedSizes(call.outputs[0], "output", {batch, heads, queries, v.sizes[3]}));
  if (call.outputs.size() > 1 && call.outputs[1].present) {
    RETURN_IF_ERROR(NeedSizes(call.outputs[1], "logsumexp", {batch, heads, queries}));
    RETURN_IF_ERROR(NeedSameType(call.outputs[1], "logsumexp", DType::kFloat32));
  }
  if (!mask.present) return absl::OkStatus();
  RETURN_IF_ERROR(NeedType(mask, "mask", kBoolType | SetOf(q.dtype)));
  return NeedSizes(mask, "mask", {batch, heads, queries, keys});
}

absl::Status Infer(const Call& call, std::span<Operand> outputs) {
  const Operand &q = call.inputs[0], &v = call.inputs[2];
  RETURN_IF_ERROR(NeedRank(q, "query", 4));
  RETURN_IF_ERROR(NeedRank(v, "value", 4));
  SetOutput(outputs[0], q.dtype, {q.sizes[0], q.sizes[1], q.sizes[2], v.sizes[3]});
  if (outputs.size() > 1) SetOutput(outputs[1], DType::kFloat32, {q.sizes[0], q.sizes[1], q.sizes[2]});
  return absl::OkStatus();
}

double Products(const Call& call) {
  return static_cast<double>(call.inputs[0].numel()) * static_cast<double>(call.inputs[1].sizes[2]);
}

Sample MakeSample(const Row&, DType type) {
  const Sample::Tensor tensor = {{1, 1, 2, 8}, type};
  return {.outputs = {tensor, {{1, 1, 2}, DType::kFloat32}},
          .inputs = {tensor, tensor, tensor, {{1, 1, 2, 2}, type}},
          .attributes = {Number::Real(1), Number::Integer(0)}};
}

}  // namespace

constinit const FamilyDescriptor kAttentionFamily = {.name = "attention",
                                                     .title = "attention",
                                                     .outputs = kOutputs,
                                                     .inputs = kInputs,
                                                     .attributes = kAttributes,
                                                     .check = Check,
                                                     .infer = Infer,
                                                     .cost = Products,
                                                     .sample = MakeSample};

}  // namespace xpud::ops
