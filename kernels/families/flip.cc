// Reversal along dimensions: a copy of the input with negative strides, which is a map.
#include "proto/ops/families/flip.h"

#include "kernels/families/map.h"
#include "kernels/families/planners.h"

namespace xpud::kernels {
namespace {

// The library's thread only.
class FlipPlanner : public Planner {
 public:
  explicit FlipPlanner(KernelCache& cache) : copies_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  MapPlanner copies_;
};

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
  return copies_.Plan(copying, workspace, launches);
}

}  // namespace

constinit const PlannerFactory kFlipPlanner = MakePlanner<FlipPlanner>;

}  // namespace xpud::kernels
