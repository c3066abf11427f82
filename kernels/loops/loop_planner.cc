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
#include "kernels/loops/loop_skeleton.h"
#include "kernels/loops/variant.h"
#include "proto/base/status_macros.h"
#include "proto/loops/bounds.h"
#include "proto/loops/definition.h"

namespace xpud::kernels {
namespace {

using loops::Statement;
using loops::StatementKind;
using ops::DType;

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

// Of the host's scratch, for what is kept of rows and columns.
constexpr int64_t kKeptBytes = kLoopScratchBytes;

constexpr int64_t kMinColumns = 8, kMinTileSide = 16;
constexpr int64_t kBusyLanes = 1 << 15;  // fewer leave a GPU idle
// Of the host's points, fewer occupy no machine; of the parts of a body that is cut.
constexpr int64_t kFewPoints = 32, kMaxParts = 1024;

// What a library keeps of a checked call (loops::DefinedCall::plan).
struct LoopPlan {
  struct Body {
    std::shared_ptr<const LoopVariant> variant;
    KernelKey key;
    int64_t points = 1, slice = 0, groups = 1;
    // Where it is cut.
    int64_t parts = 1, part_length = 0;
    size_t workspace_bytes = 0;  // taken for this body, and used by the next, too
  };
  std::vector<Body> bodies;  // those that have points; one that is cut is two
  // Of each operand: what its address must be a multiple of.
  std::vector<uint64_t> alignments;
  // Where an address is not; made when needed.
  mutable std::shared_ptr<const LoopPlan> without_blocks = nullptr;
};

// Plans a body of a checked call.
class BodyPlanner {
 public:
  BodyPlanner(Target target, const loops::DefinedCall& call, uint32_t number, bool may_use_blocks);

  void AddTo(LoopPlan& plan);

 private:
  void ScheduleOnHost();
  void ScheduleOnGpu();
  // Whether a load or store accesses adjacent elements along the dimension, from a multiple of `block` on.
  bool CanBeInBlock(const LoopPasses& passes, uint32_t i, size_t dimension, int64_t block) const;
  // Chooses how much of `dimension` a lane takes together, where `lanes` share `work` of it.
  void ChooseBlock(size_t dimension, int64_t work, int64_t lanes);
  void AddAlignments(LoopPlan& plan) const;
  // Chooses tiles across the dimension along which most is contiguous, and the loads whose tiles are turned.
  // Returns false where the last dimension is as good.
  bool ChooseTiles();
  // Returns how many loads there are.
  int64_t FindTurnedTiles();
  // Cuts the body into parts, of which there are to be about `wanted`, each of `least` positions along the
  // dimension that is cut.
  void Cut(int64_t wanted, int64_t least);
  LoopPlan::Body Make(LoopVariant::Class of) const;

  bool Has(StatementKind kind) const;
  // The bytes that the body's accesses move where a step along a dimension is a step in memory. Of accesses
  // in the innermost loops alone.
  int64_t ContiguousBytes(size_t dimension) const;
  bool HasContiguousColumns() const;
  // Whether what is kept of each column fits the host's scratch.
  bool KeepsColumns() const;

  const Target target_;
  const loops::DefinedCall& call_;
  const uint32_t number_;
  const bool may_use_blocks_;
  const loops::Kernel& kernel_;
  const loops::Body& body_;
  const loops::BodyInfo& info_;
  const std::vector<int64_t>& extents_;
  const loops::Bounds bounds_;
  const size_t outer_, rank_;
  int64_t points_ = 1, positions_ = 1;  // positions of a point
  float nanoseconds_ = 0.02f;           // of a point
  LoopVariant::Class class_;
  LoopPlan::Body plan_;
};

BodyPlanner::BodyPlanner(Target target, const loops::DefinedCall& call, uint32_t number, bool may_use_blocks)
    : target_(target),
      call_(call),
      number_(number),
      may_use_blocks_(may_use_blocks),
      kernel_(call.definition->kernel()),
      body_(kernel_.bodies[number]),
      info_(call.definition->info().bodies[number]),
      extents_(call.info.bodies[number].extents),
      bounds_(body_, call.sizes),
      outer_(body_.outer),
      rank_(extents_.size()) {
  for (size_t d = 0; d < rank_; ++d) (d < outer_ ? points_ : positions_) *= extents_[d];
  for (size_t i = 0; i < body_.statements.size(); ++i) {
    const Statement& s = body_.statements[i];
    const bool inner = info_.statements[i].is_inner || s.kind == StatementKind::kReduce;
    nanoseconds_ += CostOf(kernel_, s) * static_cast<float>(inner ? positions_ : 1);
  }
  const loops::BodyCall& checked = call.info.bodies[number];
  class_.guarded = checked.guarded;
  class_.is_exact = checked.is_exact;
  class_.is_natural = checked.is_natural;
}

bool BodyPlanner::Has(StatementKind kind) const {
  return std::ranges::any_of(body_.statements, [&](const Statement& s) { return s.kind == kind; });
}

int64_t BodyPlanner::ContiguousBytes(size_t dimension) const {
  int64_t bytes = 0;
  for (size_t i = 0; i < body_.statements.size(); ++i) {
    const Statement& s = body_.statements[i];
    if (s.kind != StatementKind::kLoad && s.kind != StatementKind::kStore) continue;
    if (rank_ > outer_ && !info_.statements[i].is_inner) continue;
    if (bounds_.Stride(s.index, static_cast<uint32_t>(dimension)) == 1)
      bytes += static_cast<int64_t>(ops::SizeOf(kernel_.operands[s.operand].type));
  }
  return bytes;
}

bool BodyPlanner::KeepsColumns() const {
  int64_t arrays = 0;
  for (const Statement& s : body_.statements) arrays += MaxKeptValues(s);
  return arrays * kLoopColumns <= kKeptBytes / 8;
}

bool BodyPlanner::HasContiguousColumns() const {
  return rank_ > outer_ && outer_ > 0 && !Has(StatementKind::kScan) && extents_[outer_ - 1] >= kMinColumns &&
         ContiguousBytes(outer_ - 1) > ContiguousBytes(rank_ - 1);
}

void BodyPlanner::AddTo(LoopPlan& plan) {
  if (points_ == 0) return;
  plan_.points = points_;
  if (target_ == Target::kHost) {
    ScheduleOnHost();
  } else {
    ScheduleOnGpu();
    AddAlignments(plan);
  }
  if (plan_.parts == 1) return plan.bodies.push_back(Make(class_));
  LoopVariant::Class merge = class_;
  class_.stage = LoopStage::kParts;
  merge.stage = LoopStage::kMerge;
  merge.schedule = LoopSchedule::kPoints;
  merge.warps = merge.keeps_rows = false;
  merge.cut = 0;
  merge.block = 1;
  merge.in_block.clear();
  size_t values = 0;
  for (const Statement& s : body_.statements)
    if (s.kind == StatementKind::kReduce) values += static_cast<size_t>(loops::InfoOf(s.reduction).gives);
  LoopPlan::Body parts = Make(class_);
  parts.workspace_bytes = values * static_cast<size_t>(plan_.parts * points_) * sizeof(int64_t);
  plan.bodies.push_back(std::move(parts));
  LoopPlan::Body merged = Make(std::move(merge));
  merged.points = points_;
  const bool host = target_ == Target::kHost;
  merged.slice = host ? SliceOf(points_, static_cast<float>(values * static_cast<size_t>(plan_.parts))) : 0;
  merged.groups = CeilDiv(points_, host ? merged.slice : int64_t{kGpuLanes});
  plan.bodies.push_back(std::move(merged));
}

LoopPlan::Body BodyPlanner::Make(LoopVariant::Class of) const {
  LoopPlan::Body made = plan_;
  made.variant = LoopVariant::Intern(call_.definition, number_, std::move(of));
  made.key = LoopSkeleton::KeyOf(*made.variant);
  return made;
}

void BodyPlanner::Cut(int64_t wanted, int64_t least) {
  const auto longest = std::max_element(extents_.begin() + static_cast<ptrdiff_t>(outer_), extents_.end());
  const int64_t parts = std::min({wanted, *longest / least, kMaxParts});
  if (parts < 2 || !LoopPasses(body_, info_, false).can_be_cut) return;
  class_.cut = static_cast<uint8_t>(longest - extents_.begin());
  plan_.part_length = CeilDiv(*longest, parts * class_.block) * class_.block;
  plan_.parts = CeilDiv(*longest, plan_.part_length);
}

bool BodyPlanner::ChooseTiles() {
  if (rank_ > outer_ || outer_ < 2 || extents_[outer_ - 1] < kMinTileSide) return false;
  size_t across = outer_ - 1;
  int64_t most = 0;
  for (size_t d = 0; d + 1 < outer_; ++d) {
    const int64_t bytes = extents_[d] >= kMinTileSide ? ContiguousBytes(d) : 0;
    if (bytes > most) most = bytes, across = d;
  }
  if (most == 0) return false;
  const int64_t tiles = points_ / extents_[outer_ - 1] / extents_[across] *
                        CeilDiv(extents_[outer_ - 1], kLoopTileColumns) *
                        CeilDiv(extents_[across], kLoopTileRows);
  class_.across = static_cast<uint8_t>(across);
  const int64_t turned = FindTurnedTiles();
  if (target_ != Target::kHost) {
    constexpr int64_t kMaxStatements = 64;  // a lane takes several points
    if (turned == 0 || tiles * kGpuLanes < kBusyLanes ||
        static_cast<int64_t>(body_.statements.size()) > kMaxStatements) {
      class_.across = 0;
      class_.in_block.clear();
      return false;
    }
  }
  class_.schedule = LoopSchedule::kTiles;
  plan_.points = tiles;
  return true;
}

int64_t BodyPlanner::FindTurnedTiles() {
  const LoopPasses passes(body_, info_, false);
  class_.in_block.resize(body_.statements.size());
  const bool host = target_ == Target::kHost;
  const int64_t most = host ? kMaxTurnedTiles : kMaxTurnedBytes / (kLoopTileRows * kLoopTilePitch * 8);
  int64_t turned = 0;
  for (uint32_t i = 0; i < body_.statements.size() && turned < most; ++i) {
    const Statement& s = body_.statements[i];
    if (s.kind != StatementKind::kLoad || info_.statements[i].type == DType::kBool) continue;
    if (passes.stored_by[i] != loops::kNone || !passes.indirects[s.index].empty()) continue;
    if (!CanBeInBlock(passes, i, class_.across, 1)) continue;
    if (bounds_.Stride(s.index, static_cast<uint32_t>(outer_ - 1)) == 0) continue;
    class_.in_block[i] = true;
    ++turned;
  }
  return turned;
}

void BodyPlanner::ScheduleOnHost() {
  int64_t multiple = rank_ == outer_ ? 64 : 1;
  if (Has(StatementKind::kAtomicAdd)) {
    plan_.slice = points_;  // points that add to the same elements run in their order
    return;
  }
  if (HasContiguousColumns() && KeepsColumns()) {
    class_.schedule = LoopSchedule::kColumns;
    const int64_t columns = extents_[outer_ - 1];
    plan_.points = points_ / columns * CeilDiv(columns, kLoopColumns);
    nanoseconds_ *= static_cast<float>(std::min(columns, kLoopColumns));
  } else if (rank_ > outer_) {
    const auto kept = std::ranges::count_if(body_.statements, IsCostly);
    class_.keeps_rows = positions_ > 1 && kept > 0 && positions_ <= kKeptBytes / 8 / kept;
  } else if (ChooseTiles()) {
    nanoseconds_ = (nanoseconds_ + 0.5f) * kLoopTileColumns * kLoopTileRows;
    multiple = 1;
  }
  plan_.slice = SliceOf(plan_.points, nanoseconds_, multiple);
  if (rank_ > outer_ && plan_.points < kFewPoints && nanoseconds_ > 4 * kSliceNanoseconds) {
    const bool columns = class_.schedule == LoopSchedule::kColumns;
    Cut(static_cast<int64_t>(nanoseconds_ / (2 * kSliceNanoseconds)), columns ? 128 : 1);
  }
  plan_.groups = CeilDiv(plan_.points, plan_.slice);
}

bool BodyPlanner::CanBeInBlock(const LoopPasses& passes, uint32_t i, size_t dimension, int64_t block) const {
  const Statement& s = body_.statements[i];
  if (s.kind != StatementKind::kLoad && s.kind != StatementKind::kStore) return false;
  if (class_.guarded[i] || info_.statements[i].block != loops::kNone) return false;
  if (s.kind == StatementKind::kStore && !passes.indirects[s.index].empty()) return false;
  const auto d = static_cast<uint32_t>(dimension);
  return bounds_.Stride(s.index, d) == 1 && bounds_.IsMultiple(s.index, d, block);
}

void BodyPlanner::ChooseBlock(size_t dimension, int64_t work, int64_t lanes) {
  constexpr size_t kMaxStatements = 512;  // in code
  if (!may_use_blocks_ || Has(StatementKind::kScan)) return;
  const LoopPasses passes(body_, info_, false);
  const auto choose = [&](int64_t block) {
    if (extents_[dimension] % block != 0 || work < block * lanes) return false;
    if (body_.statements.size() * static_cast<size_t>(block) > kMaxStatements) return false;
    std::vector<bool> in_block(body_.statements.size());
    size_t smallest = kBlockBytes;
    bool any = false;
    for (uint32_t i = 0; i < in_block.size(); ++i) {
      in_block[i] = CanBeInBlock(passes, i, dimension, block);
      if (!in_block[i]) continue;
      any = true;
      smallest = std::min(smallest, ops::SizeOf(kernel_.operands[body_.statements[i].operand].type));
    }
    if (!any || smallest * static_cast<size_t>(block) > kBlockBytes) return false;
    class_.block = static_cast<uint8_t>(block);
    class_.in_block = std::move(in_block);
    return true;
  };
  // Lanes hold a row that they share evenly.
  if (class_.schedule == LoopSchedule::kRows)
    for (const int64_t block : {8, 4, 2})
      if (work % (block * lanes) == 0 && choose(block)) return;
  for (const int64_t block : {8, 4, 2})
    if (choose(block)) return;
}

void BodyPlanner::AddAlignments(LoopPlan& plan) const {
  plan.alignments.resize(kernel_.operands.size(), 1);
  if (class_.block == 1) return;
  for (size_t i = 0; i < class_.in_block.size(); ++i) {
    if (!class_.in_block[i]) continue;
    const uint32_t operand = body_.statements[i].operand;
    const uint64_t bytes = ops::SizeOf(kernel_.operands[operand].type) * class_.block;
    uint64_t& alignment = plan.alignments[operand];
    alignment = std::max(alignment, std::min<uint64_t>(bytes, kBlockBytes));
  }
}

void BodyPlanner::ScheduleOnGpu() {
  constexpr int64_t kShared = 32, kWarpPositions = 1024, kManyLanes = 1 << 17, kManyTeams = 1024;
  if (ChooseTiles()) {
    plan_.groups = plan_.points;
    return;
  }
  const bool has_columns = HasContiguousColumns();
  if (has_columns || Has(StatementKind::kScan) || positions_ < kShared) {
    // Adjacent lanes take adjacent points.
    if (outer_ > 0) ChooseBlock(outer_ - 1, points_, kBusyLanes);
    plan_.groups = CeilDiv(points_ / class_.block, kGpuLanes);
    if (has_columns) Cut(kManyLanes / points_, 32);
    return;
  }
  class_.schedule = LoopSchedule::kRows;
  class_.warps = target_ == Target::kNvptx && positions_ <= kWarpPositions;
  ChooseBlock(rank_ - 1, extents_[rank_ - 1], class_.warps ? kWarpLanes : kGpuLanes);
  plan_.groups = class_.warps ? CeilDiv(points_, kGpuWarps) : points_;
  if (!class_.warps) Cut(kManyTeams / points_, extents_[rank_ - 1] >= 4096 ? 4096 : 1);
}

class LoopPlanner : public Planner {
 public:
  explicit LoopPlanner(KernelCache& cache) : cache_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;
  void Prepare(const ops::KernelOfCall& call) override;

 private:
  std::shared_ptr<const LoopPlan> Make(const loops::DefinedCall& call, bool may_use_blocks) const;
  // Returns the one for aligned buffers.
  const LoopPlan& AlignedPlanOf(const loops::DefinedCall& call);
  // Returns the one whose alignments the call has.
  const LoopPlan& PlanOf(const loops::DefinedCall& call);

  KernelCache& cache_;
  LoopSkeleton skeleton_;
  LoopArguments<Planned> arguments_;    // of the launch being planned
  std::vector<const Kernel*> kernels_;  // of the plan's bodies
};

std::shared_ptr<const LoopPlan> LoopPlanner::Make(const loops::DefinedCall& call, bool may_use_blocks) const {
  auto plan = std::make_shared<LoopPlan>();
  for (uint32_t b = 0; b < call.info.bodies.size(); ++b)
    BodyPlanner(cache_.target(), call, b, may_use_blocks).AddTo(*plan);
  return plan;
}

const LoopPlan& LoopPlanner::AlignedPlanOf(const loops::DefinedCall& call) {
  if (call.plan == nullptr) call.plan = Make(call, true);
  return *static_cast<const LoopPlan*>(call.plan.get());
}

const LoopPlan& LoopPlanner::PlanOf(const loops::DefinedCall& call) {
  const LoopPlan& plan = AlignedPlanOf(call);
  for (size_t i = 0; i < plan.alignments.size(); ++i) {
    if (reinterpret_cast<uintptr_t>(arguments_.buffers[i]) % plan.alignments[i] == 0) continue;
    if (plan.without_blocks == nullptr) plan.without_blocks = Make(call, false);
    return *plan.without_blocks;
  }
  return plan;
}

void LoopPlanner::Prepare(const ops::KernelOfCall& call) {
  for (const LoopPlan::Body& body : AlignedPlanOf(static_cast<const loops::DefinedCall&>(call)).bodies)
    (void)cache_.Find(skeleton_, body.key);  // an error is kept for the call
}

absl::StatusOr<Readiness> LoopPlanner::Plan(const OpCall& call, Workspace workspace, LaunchList& launches) {
  if (call.kernel == nullptr) return absl::InvalidArgumentError("a loop kernel that is not defined");
  const auto& defined = static_cast<const loops::DefinedCall&>(*call.kernel);
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
  const LoopPlan& plan = PlanOf(defined);

  // All are asked for before the first is waited for.
  kernels_.clear();
  bool ready = true;
  for (const LoopPlan::Body& body : plan.bodies) {
    ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, body.key));
    ready &= kernel != nullptr;
    kernels_.push_back(kernel);
  }
  if (!ready) return Readiness::kCompiling;

  for (size_t b = 0; b < plan.bodies.size(); ++b) {
    const LoopPlan::Body& body = plan.bodies[b];
    if (body.workspace_bytes > 0) {
      ASSIGN_OR_RETURN(arguments_.workspace, workspace(body.workspace_bytes));
    }
    const bool in_parts = body.variant->call().stage == LoopStage::kParts;
    Launch& launch = launches.Add();
    launch.Reset(kernels_[b], body.groups, in_parts ? body.parts : 1);
    if (cache_.target() != Target::kHost) launch.group_size = {kGpuLanes, 1, 1};
    arguments_.points = body.points;
    arguments_.slice = body.slice;
    arguments_.parts = body.parts;
    arguments_.part_length = body.part_length;
    PushArguments<LoopVariant, LoopArguments>(*body.variant, arguments_, launch);
  }
  return Readiness::kReady;
}

}  // namespace

constinit const PlannerFactory kLoopPlanner = MakePlanner<LoopPlanner>;

}  // namespace xpud::kernels
