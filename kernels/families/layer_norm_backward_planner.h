// Plans the gradients of layer norm. Engine thread only.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/layer_norm_backward_skeleton.h"

namespace xpud::kernels {

class LayerNormBackwardPlanner : public Planner {
 public:
  explicit LayerNormBackwardPlanner(KernelCache& cache) : cache_(cache) {}

  bool Serves(ops::Family family) const override { return family == ops::Family::kLayerNormBackward; }
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  KernelCache& cache_;
  const LayerNormBackwardSkeleton rows_;
  const LayerNormMergeSkeleton merge_;
};

}  // namespace xpud::kernels
