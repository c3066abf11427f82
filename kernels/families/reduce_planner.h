// Plans reductions: splits the dimensions into kept and reduced, picks the loop order, and cuts long
// reductions into parts. Engine thread only.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/layout.h"
#include "kernels/families/reduce_skeleton.h"

namespace xpud::kernels {

class ReducePlanner : public Planner {
 public:
  explicit ReducePlanner(KernelCache& cache) : cache_(cache) {}

  bool Serves(ops::Family family) const override { return family == ops::Family::kReduce; }
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  struct Traits {
    bool known = false;
    bool uses_position = false;  // reduced dimensions keep their order
    bool uses_attribute = false;
    int components = 0;
  };
  // How the work is cut; see the arguments of ReduceSkeleton.
  struct Cut {
    int64_t items = 1, item_slice = 1, column_slice = 0;
    int64_t groups = 1;  // x
    int64_t outer = 1, outer_slice = 1, inner = 1, inner_slice = 1, parts = 1;
  };

  absl::StatusOr<const Traits*> TraitsOf(const ops::Row& row);
  Cut CutOf(const ReduceKey& key, const Layout& kept, const Layout& reduced) const;
  Cut GpuCutOf(const Operand& a, ReduceKey& key, const Layout& kept, const Layout& reduced) const;
  absl::StatusOr<Readiness> PlanMerge(const OpCall& call, ReduceKey key, const Layout& kept, const Cut& cut,
                                      int64_t count, void* states, LaunchList& launches);

  KernelCache& cache_;
  const ReduceSkeleton skeleton_;
  const ReduceMergeSkeleton merge_;
  std::vector<Traits> traits_;  // by row number
};

}  // namespace xpud::kernels
