// Concatenation: copies each tensor into its part of the output.
#pragma once

#include "kernels/families/map.h"

namespace xpud::kernels {

// The library's thread only.
class ConcatPlanner : public Planner {
 public:
  explicit ConcatPlanner(KernelCache& cache) : copies_(cache) {}

  bool Serves(ops::Family family) const override { return family == ops::Family::kConcat; }
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  MapPlanner copies_;
};

}  // namespace xpud::kernels
