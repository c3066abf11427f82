// Concatenation: copies each tensor into its part of the output, as a map of lists.
#pragma once

#include <vector>

#include "kernels/families/foreach.h"

namespace xpud::kernels {

// The library's thread only.
class ConcatPlanner : public Planner {
 public:
  explicit ConcatPlanner(KernelCache& cache) : copies_(cache) {}

  bool Serves(ops::Family family) const override { return family == ops::Family::kConcat; }
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  ForeachPlanner copies_;
  std::vector<Operand> parts_;  // of the output
};

}  // namespace xpud::kernels
