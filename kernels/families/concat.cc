#include "kernels/families/concat.h"

#include "proto/base/status_macros.h"

namespace xpud::kernels {

absl::StatusOr<Readiness> ConcatPlanner::Plan(const OpCall& call, Workspace workspace, LaunchList& launches) {
  static const ops::Row& copy = ops::RowOf("_copy_from");
  const size_t dim = static_cast<size_t>(call.attributes[0].AsInteger());
  Operand part = call.outputs[0];
  Readiness readiness = Readiness::kReady;  // all kernels compile before the first wait
  for (const Operand& tensor : call.inputs) {
    part.sizes[dim] = tensor.sizes[dim];
    const OpCall one = {
        .row = &copy, .compute = part.dtype, .outputs = {&part, 1}, .inputs = {&tensor, 1}, .attributes = {}};
    ASSIGN_OR_RETURN(const Readiness ready, copies_.Plan(one, workspace, launches));
    if (ready == Readiness::kCompiling) readiness = ready;
    part.data = static_cast<std::byte*>(part.data) +
                static_cast<size_t>(tensor.sizes[dim] * part.strides[dim]) * ops::SizeOf(part.dtype);
  }
  return readiness;
}

}  // namespace xpud::kernels
