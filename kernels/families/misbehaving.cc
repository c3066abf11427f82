#include "kernels/families/misbehaving.h"

#include <cstdint>

#include "kernels/families/planners.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/test.h"

namespace xpud::kernels {

absl::Status MisbehavingSkeleton::EmitBody(const MisbehavingKey& key,
                                           const MisbehavingArguments<Emitted>& arguments, Emitter& e) const {
  constexpr bool kVolatile = true;
  if (!key.endless) {
    e.ir().CreateStore(e.ir().getInt8(1), arguments.address, kVolatile);
    return absl::OkStatus();
  }
  // Reads for centuries; no compiler may drop volatile reads.
  e.Loop(e.I64(0), e.I64(INT64_MAX), e.I64(1),
         [&](llvm::Value*) { e.ir().CreateLoad(e.ir().getInt8Ty(), arguments.address, kVolatile); });
  return absl::OkStatus();
}

absl::StatusOr<Readiness> MisbehavingPlanner::Plan(const OpCall& call, Workspace, LaunchList& launches) {
  const MisbehavingKey key{.endless = call.row->aten == "xpud::test_endless"};
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key));
  if (kernel == nullptr) return Readiness::kCompiling;
  const bool gpu = cache_.target() != Target::kHost;
  const auto test = ops::Read<ops::TestCall>(call);
  Launch& launch = launches.Add();
  launch.Reset(kernel, key.endless ? test.groups : 1);
  if (gpu) launch.group_size = {kGpuLanes, 1, 1};
  MisbehavingArguments<Planned> arguments{.address = key.endless ? test.out->data : nullptr};
  PushArguments(key, arguments, launch);
  return Readiness::kReady;
}

constinit const PlannerFactory kTestPlanner = MakePlanner<MisbehavingPlanner>;

}  // namespace xpud::kernels
