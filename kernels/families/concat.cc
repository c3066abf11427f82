#include "kernels/families/concat.h"

#include "proto/ops/families/concat.h"

namespace xpud::kernels {

absl::StatusOr<Readiness> ConcatPlanner::Plan(const OpCall& call, Workspace workspace, LaunchList& launches) {
  static const ops::Row& foreach = ops::RowOf("xpud::foreach"), &copy = ops::RowOf("_copy_from");
  const auto concat = ops::Read<ops::ConcatCall>(call);
  const auto dim = static_cast<size_t>(concat.dim);
  Operand part = *concat.out;
  parts_.clear();
  for (const Operand& tensor : call.inputs) {
    part.sizes[dim] = tensor.sizes[dim];
    parts_.push_back(part);
    part.data = static_cast<std::byte*>(part.data) +
                static_cast<size_t>(tensor.sizes[dim] * part.strides[dim]) * ops::SizeOf(part.dtype);
  }
  const auto count = static_cast<uint16_t>(parts_.size());
  const uint16_t lists[] = {count, count, 0, 0, 0, 0};
  const ops::Number row = ops::Number::Integer(copy.number);
  return copies_.Plan({.row = &foreach,
                       .compute = part.dtype,
                       .outputs = parts_,
                       .inputs = call.inputs,
                       .attributes = {&row, 1},
                       .lists = lists},
                      workspace, launches);
}

}  // namespace xpud::kernels
