// Plans calls of loop kernels.
#include "kernels/families/planners.h"
#include "proto/loops/definition.h"

namespace xpud::kernels {
namespace {

class LoopPlanner : public Planner {
 public:
  explicit LoopPlanner(KernelCache&) {}
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace, LaunchList&) override {
    if (call.kernel == nullptr) return absl::InvalidArgumentError("a loop kernel that is not defined");
    return absl::UnimplementedError("loop kernels are not compiled yet");
  }
};

}  // namespace

constinit const PlannerFactory kLoopPlanner = MakePlanner<LoopPlanner>;

}  // namespace xpud::kernels
