// Plans the negative log likelihood loss and its gradient. Engine thread only.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/nll_skeleton.h"

namespace xpud::kernels {

class NllPlanner : public Planner {
 public:
  explicit NllPlanner(KernelCache& cache) : cache_(cache) {}

  bool Serves(ops::Family family) const override { return family == ops::Family::kNllLoss; }
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  absl::StatusOr<Readiness> PlanForward(const OpCall& call, Workspace workspace, LaunchList& launches);
  absl::StatusOr<Readiness> PlanBackward(const OpCall& call, Workspace workspace, LaunchList& launches);

  KernelCache& cache_;
  const NllForwardSkeleton forward_;
  const NllBackwardSkeleton backward_;
};

}  // namespace xpud::kernels
