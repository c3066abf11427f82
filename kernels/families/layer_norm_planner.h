// Plans layer normalisation. Engine thread only.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/layer_norm_skeleton.h"

namespace xpud::kernels {

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
