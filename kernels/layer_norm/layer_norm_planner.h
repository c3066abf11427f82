// Plans layer normalisation. Engine thread only.
#pragma once

#include "kernels/compiler/kernel_cache.h"
#include "kernels/layer_norm/layer_norm_skeleton.h"
#include "kernels/planner.h"

namespace xpud::kernels {

class LayerNormPlanner : public Planner {
 public:
  explicit LayerNormPlanner(KernelCache& cache) : cache_(cache) {}

  bool Serves(ops::Family family) const override { return family == ops::Family::kLayerNorm; }
  absl::StatusOr<Readiness> Plan(const OpCall& call, KernelLibrary::Workspace workspace,
                                 LaunchList& launches) override;

 private:
  KernelCache& cache_;
  const LayerNormSkeleton skeleton_;
};

}  // namespace xpud::kernels
