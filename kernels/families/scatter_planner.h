// Plans additions of rows at indices (the gradient of an embedding). Engine thread only.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/scatter_skeleton.h"

namespace xpud::kernels {

class ScatterPlanner : public Planner {
 public:
  explicit ScatterPlanner(KernelCache& cache) : cache_(cache) {}

  bool Serves(ops::Family family) const override { return family == ops::Family::kScatterAdd; }
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  KernelCache& cache_;
  const ScatterSkeleton skeleton_;
};

}  // namespace xpud::kernels
