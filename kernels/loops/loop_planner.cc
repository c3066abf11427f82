// Plans calls of loop kernels: a launch for each body.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/families/op_cost.h"
#include "kernels/families/planners.h"
#include "kernels/families/slices.h"
#include "kernels/loops/arguments.h"
#include "kernels/loops/emission.h"
#include "kernels/loops/functions.h"
#include "kernels/loops/variant.h"
#include "proto/base/status_macros.h"
#include "proto/loops/definition.h"

namespace xpud::kernels {
namespace {

using loops::Statement;
using loops::StatementKind;

// Its keys hold the number of a variant.
class LoopSkeleton : public Skeleton {
 public:
  static KernelKey KeyOf(const LoopVariant& variant) {
    return {{kNumber | variant.number() << kSkeletonBits, 0, 0, 0}};
  }

  std::string NameOf(const KernelKey& key) const override { return VariantOf(key)->name(); }
  std::string Describe(const KernelKey& key) const override { return VariantOf(key)->identity(); }
  // Numbers differ from process to process.
  std::string IdentityOf(const KernelKey& key) const override { return "loop|" + Describe(key); }
  std::shared_ptr<const void> Keep(const KernelKey& key) const override { return VariantOf(key); }
  std::vector<ArgType> ArgumentsOf(const KernelKey& key) const override {
    return TypesOf<LoopArguments>(*VariantOf(key));
  }
  absl::Status Emit(const KernelKey& key, const std::string& name, Emitter& emitter) const override {
    const std::shared_ptr<const LoopVariant> variant = VariantOf(key);
    const auto arguments = emitter.Begin<LoopArguments>(name, *variant);
    return LoopEmission(*variant, arguments, emitter).Run();
  }

 private:
  static constexpr uint64_t kNumber = static_cast<uint64_t>(ops::Family::kLoop) * 4;

  static std::shared_ptr<const LoopVariant> VariantOf(const KernelKey& key) {
    return LoopVariant::Find(key.words[0] >> kSkeletonBits);
  }
};

// Of one core of the host, for one run of the statement.
float CostOf(const loops::Kernel& kernel, const Statement& s) {
  switch (s.kind) {
    case StatementKind::kLoad:
    case StatementKind::kStore:
      return static_cast<float>(ops::SizeOf(kernel.operands[s.operand].type)) / kBytesPerNanosecond;
    case StatementKind::kAtomicAdd:
    case StatementKind::kIndirect:
      return 1;
    case StatementKind::kCall:
      return NanosecondsOf(OpOf(s.function));
    case StatementKind::kRandom:
      return NanosecondsOf(OpOf(static_cast<loops::Random>(s.integer)));
    case StatementKind::kSearch:
      return 40;
    default:
      return 0.04f;
  }
}

// What a library keeps of a checked call (loops::DefinedCall::plan).
struct LoopPlan {
  struct Body {
    std::shared_ptr<const LoopVariant> variant;
    KernelKey key;
    int64_t points = 1, slice = 0, groups = 1;
  };
  std::vector<Body> bodies;  // those that have points
};

class LoopPlanner : public Planner {
 public:
  explicit LoopPlanner(KernelCache& cache) : cache_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  std::shared_ptr<const LoopPlan> Make(const loops::DefinedCall& call) const;
  LoopPlan::Body MakeBody(const loops::DefinedCall& call, uint32_t number) const;

  KernelCache& cache_;
  LoopSkeleton skeleton_;
  LoopArguments<Planned> arguments_;    // of the launch being planned
  std::vector<const Kernel*> kernels_;  // of the plan's bodies
};

std::shared_ptr<const LoopPlan> LoopPlanner::Make(const loops::DefinedCall& call) const {
  auto plan = std::make_shared<LoopPlan>();
  for (uint32_t b = 0; b < call.info.bodies.size(); ++b) {
    LoopPlan::Body body = MakeBody(call, b);
    if (body.points > 0) plan->bodies.push_back(std::move(body));
  }
  return plan;
}

LoopPlan::Body LoopPlanner::MakeBody(const loops::DefinedCall& call, uint32_t number) const {
  const loops::Kernel& kernel = call.definition->kernel();
  const loops::Body& body = kernel.bodies[number];
  const loops::BodyInfo& info = call.definition->info().bodies[number];
  const loops::BodyCall& checked = call.info.bodies[number];
  LoopPlan::Body plan;
  int64_t positions = 1;
  for (size_t d = 0; d < checked.extents.size(); ++d)
    (d < body.outer ? plan.points : positions) *= checked.extents[d];
  if (plan.points == 0) return plan;

  bool scans = false, adds = false;
  float nanoseconds = 0.02f;  // of a point
  for (size_t i = 0; i < body.statements.size(); ++i) {
    const Statement& s = body.statements[i];
    scans |= s.kind == StatementKind::kScan;
    adds |= s.kind == StatementKind::kAtomicAdd;
    const bool inner = info.statements[i].is_inner || s.kind == StatementKind::kReduce;
    nanoseconds += CostOf(kernel, s) * static_cast<float>(inner ? positions : 1);
  }
  LoopVariant::Class of = {
      .guarded = checked.guarded, .is_exact = checked.is_exact, .is_natural = checked.is_natural};
  if (cache_.target() == Target::kHost) {
    // Points that add to the same elements run in their order.
    const int64_t multiple = body.extents.size() == body.outer ? 64 : 1;
    plan.slice = adds ? plan.points : SliceOf(plan.points, nanoseconds, multiple);
    plan.groups = CeilDiv(plan.points, plan.slice);
  } else {
    constexpr int64_t kShared = 32, kWarpPositions = 1024;
    if (!scans && positions >= kShared) of.schedule = LoopSchedule::kRows;
    of.warps = of.schedule == LoopSchedule::kRows && cache_.target() == Target::kNvptx &&
               positions <= kWarpPositions;
    plan.groups = plan.points;
    if (of.warps) plan.groups = CeilDiv(plan.points, kGpuWarps);
    if (of.schedule == LoopSchedule::kPoints) plan.groups = CeilDiv(plan.points, kGpuLanes);
  }
  plan.variant = LoopVariant::Intern(call.definition, number, std::move(of));
  plan.key = LoopSkeleton::KeyOf(*plan.variant);
  return plan;
}

absl::StatusOr<Readiness> LoopPlanner::Plan(const OpCall& call, Workspace, LaunchList& launches) {
  if (call.kernel == nullptr) return absl::InvalidArgumentError("a loop kernel that is not defined");
  const auto& defined = static_cast<const loops::DefinedCall&>(*call.kernel);
  if (defined.plan == nullptr) defined.plan = Make(defined);
  const auto& plan = *static_cast<const LoopPlan*>(defined.plan.get());
  // All are asked for before the first is waited for.
  kernels_.clear();
  bool ready = true;
  for (const LoopPlan::Body& body : plan.bodies) {
    ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, body.key));
    ready &= kernel != nullptr;
    kernels_.push_back(kernel);
  }
  if (!ready) return Readiness::kCompiling;

  const std::vector<loops::Operand>& operands = defined.definition->kernel().operands;
  arguments_.buffers.resize(operands.size());
  arguments_.elements.assign(defined.elements.begin(), defined.elements.end());
  arguments_.scalars.resize(operands.size());
  arguments_.sizes.assign(defined.sizes.begin(), defined.sizes.end());
  arguments_.error_word = call.error_word;
  size_t outputs = 0, inputs = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    const bool is_output = operands[i].role >= loops::Role::kWritten;
    const Operand& operand = is_output ? call.outputs[outputs++] : call.inputs[inputs++];
    arguments_.buffers[i] = operand.data;
    arguments_.scalars[i] = &operand.number;
  }
  for (size_t b = 0; b < plan.bodies.size(); ++b) {
    const LoopPlan::Body& body = plan.bodies[b];
    Launch& launch = launches.Add();
    launch.Reset(kernels_[b], body.groups);
    if (cache_.target() != Target::kHost) launch.group_size = {kGpuLanes, 1, 1};
    arguments_.points = body.points;
    arguments_.slice = body.slice;
    PushArguments<LoopVariant, LoopArguments>(*body.variant, arguments_, launch);
  }
  return Readiness::kReady;
}

}  // namespace

constinit const PlannerFactory kLoopPlanner = MakePlanner<LoopPlanner>;

}  // namespace xpud::kernels
