// Layer normalisation over the last dimension; everything is dense.
//
// Arguments: y, mean, rstd, x, weight?, bias? | N | M | row slice | eps (accumulate type). A host group is a
// slice of rows; a GPU group is a row, or each of its warps one.
#pragma once

#include <array>

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/row_plan.h"

namespace xpud::kernels {

struct LayerNormKey {
  // In the order of the arguments' pointers; weight and bias may be absent.
  std::array<ops::DType, 6> dtypes{};
  std::array<bool, 6> present{};
  RowPlan rows = {};  // GPU

  KernelKey Pack() const;
  static LayerNormKey Unpack(const KernelKey& key);
};

class LayerNormSkeleton : public Skeleton {
 public:
  std::string NameOf(const KernelKey&) const override { return "layer_norm"; }
  std::string Describe(const KernelKey&) const override { return {}; }
  absl::Status Emit(const KernelKey& key, const std::string& name, Emitter& emitter) const override;
};

// Plans layer normalisation. Engine thread only.
class LayerNormPlanner : public Planner {
 public:
  explicit LayerNormPlanner(KernelCache& cache) : cache_(cache) {}

  bool Serves(ops::Family family) const override { return family == ops::Family::kLayerNorm; }
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  KernelCache& cache_;
  const LayerNormSkeleton skeleton_;
};

}  // namespace xpud::kernels
