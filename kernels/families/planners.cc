#include "kernels/families/planners.h"

namespace xpud::kernels {

// These have no kernels here: kernels/library plans them.
constinit const PlannerFactory kMatmulPlanner = nullptr;
constinit const PlannerFactory kAttentionPlanner = nullptr;
constinit const PlannerFactory kTrainingAttentionPlanner = nullptr;
constinit const PlannerFactory kAttentionBackwardPlanner = nullptr;

}  // namespace xpud::kernels
