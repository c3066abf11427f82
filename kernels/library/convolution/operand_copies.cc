#include "kernels/library/convolution/operand_copies.h"

#include "proto/base/status_macros.h"
#include "proto/ops/op_table.h"

namespace xpud::kernels::convolution {

absl::Status OperandCopies::Map(const ops::Row& row, const Operand& out, std::span<const Operand> inputs) {
  ASSIGN_OR_RETURN(
      const Readiness ready,
      maps_.Plan(
          {.row = &row, .compute = out.dtype, .outputs = {&out, 1}, .inputs = inputs, .attributes = {}},
          workspace_, launches_));
  if (ready == Readiness::kCompiling) readiness_ = ready;
  return absl::OkStatus();
}

absl::StatusOr<Operand> OperandCopies::Make(const Operand& like) {
  ASSIGN_OR_RETURN(void* const data,
                   workspace_(static_cast<size_t>(like.numel()) * static_cast<size_t>(ops::SizeOf(type_))));
  return Dense(like, type_, layout_, data);
}

absl::StatusOr<std::byte*> OperandCopies::Read(const Operand& operand) {
  if (IsDense(operand, type_, layout_)) return static_cast<std::byte*>(operand.data);
  ASSIGN_OR_RETURN(const Operand made, Make(operand));
  RETURN_IF_ERROR(Map(ops::RowOf("_copy_from"), made, {&operand, 1}));
  return static_cast<std::byte*>(made.data);
}

absl::StatusOr<Operand> OperandCopies::Result(const Operand& out) {
  if (IsDense(out, type_, layout_)) return out;
  return Make(out);
}

absl::Status OperandCopies::Write(const Operand& result, const Operand& out, const Operand* bias) {
  if (bias == nullptr) {
    if (result.data == out.data) return absl::OkStatus();
    return Map(ops::RowOf("_copy_from"), out, {&result, 1});
  }
  Operand row = out;
  row.data = bias->data;
  row.strides.fill(0);
  row.strides[1] = bias->strides[0];
  Operand one;
  one.immediate = true;
  one.dtype = ops::DType::kInt64;
  one.number = ops::Number::Integer(1);
  const Operand inputs[] = {result, row, one};
  return Map(ops::RowOf("add.Tensor"), out, inputs);
}

}  // namespace xpud::kernels::convolution
