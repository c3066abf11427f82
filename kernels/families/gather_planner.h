// Plans gather, index_select and embedding. Engine thread only.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/gather_skeleton.h"

namespace xpud::kernels {

class GatherPlanner : public Planner {
 public:
  explicit GatherPlanner(KernelCache& cache) : cache_(cache) {}

  bool Serves(ops::Family family) const override {
    return family == ops::Family::kGather || family == ops::Family::kEmbedding;
  }
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  KernelCache& cache_;
  const GatherSkeleton skeleton_;
};

}  // namespace xpud::kernels
