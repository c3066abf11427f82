// Reversal along dimensions: a copy of the input with negative strides, which maps plan.
#pragma once

#include "kernels/api/planner.h"

namespace xpud::kernels {

// The library's thread only.
class FlipPlanner : public Planner {
 public:
  // `maps` outlives this.
  explicit FlipPlanner(Planner& maps) : maps_(maps) {}

  bool Serves(ops::Family family) const override { return family == ops::Family::kFlip; }
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  Planner& maps_;
};

}  // namespace xpud::kernels
