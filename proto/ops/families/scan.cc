// Scans along one dimension: out[S] <- self[S], where element k of out is the reduction of elements 0 to k of
// self. The row's formula is a reduction formula (op_table.h) without `n`. Rows with two outputs give values
// and their positions.
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr Parameter kSelf[] = {{"self"}}, kOut[] = {{"out"}}, kValuesAndIndices[] = {{"values"}, {"indices"}};
constexpr Attribute kDim[] = {{"dim", AttributeType::kDimension}};

DType TypeOfOut(const Call& call) {
  return call.row->types == TypeRule::kSum ? call.compute : call.inputs[0].dtype;
}

absl::Status Check(const Call& call) {
  for (const Operand& out : call.outputs) RETURN_IF_ERROR(NeedSameSizes(out, call.inputs[0], "output"));
  RETURN_IF_ERROR(NeedSameType(call.outputs[0], "output", TypeOfOut(call)));
  if (call.outputs.size() > 1) RETURN_IF_ERROR(NeedSameType(call.outputs[1], "indices", DType::kInt64));
  return DimensionOf(call, call.inputs[0]).status();
}

absl::Status Infer(const Call& call, std::span<Operand> outputs) {
  for (Operand& out : outputs) SetOutputLike(out, call.inputs[0]);
  outputs[0].dtype = TypeOfOut(call);
  if (outputs.size() > 1) outputs[1].dtype = DType::kInt64;
  return absl::OkStatus();
}

Sample MakeSample(const Row& row, DType type) {
  Sample sample = {{{{2, 3}, type}}, {{{2, 3}, type}}, {Number::Integer(1)}};
  if (row.outputs > 1) sample.outputs.push_back({{2, 3}, DType::kInt64});
  return sample;
}

}  // namespace

constinit const FamilyDescriptor kScanFamily = {.name = "scan",
                                                .title = "scans",
                                                .outputs = kOut,
                                                .inputs = kSelf,
                                                .attributes = kDim,
                                                .check = Check,
                                                .infer = Infer,
                                                .sample = MakeSample};
constinit const FamilyDescriptor kIndexedScanFamily = {.name = "indexed_scan",
                                                       .title = "scans with positions",
                                                       .outputs = kValuesAndIndices,
                                                       .inputs = kSelf,
                                                       .attributes = kDim,
                                                       .check = Check,
                                                       .infer = Infer,
                                                       .sample = MakeSample};

}  // namespace xpud::ops
