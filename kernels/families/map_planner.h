// Plans element-wise ops: collapses the operands' layouts, picks the kernel, cuts the work into slices.
// Engine thread only.
#pragma once

#include <vector>

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/map_skeleton.h"

namespace xpud::kernels {

class MapPlanner : public Planner {
 public:
  explicit MapPlanner(KernelCache& cache) : cache_(cache) {}

  bool Serves(ops::Family family) const override { return family == ops::Family::kMap; }
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  // What a row's formula says, found on first use.
  struct Traits {
    bool known = false;
    bool uses_index = false;  // its position or random numbers: dimensions keep their order
    bool random_integers = false;
    uint32_t seeds = 0;
    float nanoseconds = 0;  // of arithmetic, an element
  };

  absl::StatusOr<const Traits*> TraitsOf(const ops::Row& row);
  void ChooseTypes(const OpCall& call, const Traits& traits, MapKey& key) const;
  void PushArguments(const OpCall& call, const MapKey& key, uint32_t seeds, Launch& launch) const;

  KernelCache& cache_;
  const MapSkeleton skeleton_;
  std::vector<Traits> traits_;  // by row number
};

}  // namespace xpud::kernels
