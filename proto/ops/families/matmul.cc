// Matrix product: out[B?,M,N] = activation(alpha * a @ b + beta * c) <- a[B?,M,K], b[B?,K,N], c? (broadcast
// to out). Products of equal operands may differ in the last bits once the device keeps b in a layout of its
// own, unless the call asks for a deterministic one (matmul.h).
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr Parameter kOut[] = {{"out"}};
constexpr Parameter kInputs[] = {{"a"}, {"b"}, {"c", kOptional}};
constexpr Attribute kAttributes[] = {
    {"beta", AttributeType::kReal}, {"alpha", AttributeType::kReal}, {"activation", AttributeType::kInteger}};

absl::Status Check(const Call& call) {
  const Operand &out = call.outputs[0], &a = call.inputs[0], &b = call.inputs[1], &c = call.inputs[2];
  if (a.rank != 2 && a.rank != 3)
    return absl::InvalidArgumentError(absl::StrCat("a matrix of rank ", a.rank, ", 2 or 3 is needed"));
  RETURN_IF_ERROR(NeedRank(b, "second matrix", a.rank));
  RETURN_IF_ERROR(NeedRank(out, "output", a.rank));
  const int m = a.rank - 2, n = a.rank - 1;
  if (a.sizes[n] != b.sizes[m] || out.sizes[m] != a.sizes[m] || out.sizes[n] != b.sizes[n] ||
      (m == 1 && (a.sizes[0] != out.sizes[0] || b.sizes[0] != out.sizes[0]))) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(a), " times ", Describe(b), " does not give ", Describe(out)));
  }
  RETURN_IF_ERROR(NeedSameType(b, "second matrix", a.dtype));
  RETURN_IF_ERROR(NeedSameType(out, "output", a.dtype));
  if (!c.present) return absl::OkStatus();
  RETURN_IF_ERROR(NeedSameType(c, "addend", a.dtype));
  return NeedBroadcastTo(c, out, "addend");
}

absl::Status Infer(const Call& call, std::span<Operand> outputs) {
  const Operand &a = call.inputs[0], &b = call.inputs[1];
  if (a.rank != 2 && a.rank != 3)
    return absl::InvalidArgumentError(absl::StrCat("a matrix of rank ", a.rank, ", 2 or 3 is needed"));
  RETURN_IF_ERROR(NeedRank(b, "second matrix", a.rank));
  SetOutputLike(outputs[0], a);
  outputs[0].sizes[a.rank - 1] = b.sizes[a.rank - 1];
  return absl::OkStatus();
}

double Products(const Call& call) {
  const Operand& a = call.inputs[0];
  return static_cast<double>(call.outputs[0].numel()) * static_cast<double>(a.sizes[a.rank - 1]);
}

Sample MakeSample(const Row&, DType type) {
  return {.outputs = {{{2, 2}, type}},
          .inputs = {{{2, 3}, type}, {{3, 2}, type}, {{2, 2}, type}},
          .attributes = {Number::Real(1), Number::Real(1), Number::Integer(0)}};
}

}  // namespace

constinit const FamilyDescriptor kMatmulFamily = {.name = "matmul",
                                                  .title = "matrix product",
                                                  .outputs = kOut,
                                                  .inputs = kInputs,
                                                  .attributes = kAttributes,
                                                  .check = Check,
                                                  .infer = Infer,
                                                  .cost = Products,
                                                  .sample = MakeSample};

}  // namespace xpud::ops
