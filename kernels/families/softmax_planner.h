// Plans softmax and its relatives. Engine thread only.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/layout.h"
#include "kernels/families/softmax_skeleton.h"

namespace xpud::kernels {

class SoftmaxPlanner : public Planner {
 public:
  explicit SoftmaxPlanner(KernelCache& cache) : cache_(cache) {}

  bool Serves(ops::Family family) const override { return family == ops::Family::kSoftmax; }
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  // GPU: how lanes share the work.
  void ChooseLanes(const OpCall& call, const Layout& kept, int64_t n, SoftmaxKey& key) const;

  KernelCache& cache_;
  const SoftmaxSkeleton skeleton_;
};

}  // namespace xpud::kernels
