#include "kernels/families/flip.h"

#include "proto/ops/families/flip.h"

namespace xpud::kernels {

absl::StatusOr<Readiness> FlipPlanner::Plan(const OpCall& call, Workspace workspace, LaunchList& launches) {
  static const ops::Row& copy = ops::RowOf("_copy_from");
  const auto flip = ops::Read<ops::FlipCall>(call);
  Operand source = *flip.self;
  if (source.numel() == 0) return Readiness::kReady;
  auto offset = static_cast<int64_t>(0);  // of the element that comes first
  for (size_t i = 0; i < flip.dims.size(); ++i) {
    const auto dim = static_cast<size_t>(flip.dims[i]);
    offset += source.strides[dim] * (source.sizes[dim] - 1);
    source.strides[dim] = -source.strides[dim];
  }
  source.data =
      static_cast<std::byte*>(source.data) + offset * static_cast<int64_t>(ops::SizeOf(source.dtype));
  OpCall copying = call;
  copying.row = &copy;
  copying.compute = source.dtype;
  copying.inputs = {&source, 1};
  copying.attributes = {};
  return maps_.Plan(copying, workspace, launches);
}

}  // namespace xpud::kernels
