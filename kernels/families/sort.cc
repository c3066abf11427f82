#include "kernels/families/sort.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "kernels/families/planners.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/order.h"

namespace xpud::kernels {

namespace {

constexpr int64_t kMinDigitsLine = 512;              // longer lines are sorted by digits on a GPU
constexpr int64_t kGpuChunk = 8, kHostChunk = 4096;  // items that a work item merges
constexpr int64_t kSelectTile = 32768;               // elements of a tile of a selection

}  // namespace

// A call, as the kernels see it.
struct SortPlanner::SortPlan {
  SortedLines lines;
  int64_t tile = 1;
  SortKey key;  // of the first kernel
};

// The items of a launch, and how many of them a group takes.
struct SortPlanner::Cut {
  int64_t items, slice;
};

using SortPlan = SortPlanner::SortPlan;

namespace {

using Runs = RunArguments<Planned>;

// Returns the runs of a line if each covers `covers` elements.
Runs RunsOf(const SortPlan& plan, int64_t covers) {
  Runs runs;
  runs.covers = covers;
  runs.length = std::min(covers, plan.lines.k);
  runs.count = CeilDiv(plan.lines.n, covers);
  const int64_t rest = plan.lines.n - (runs.count - 1) * covers;
  runs.pitch = (runs.count - 1) * runs.length + std::min(runs.length, rest);
  return runs;
}

bool IsWide(ops::DType type, int64_t n) {
  return ops::SizeOf(type) == 8 || n > std::numeric_limits<int32_t>::max();
}

bool IsEmpty(const Operand& operand) {
  return std::any_of(operand.sizes.begin(), operand.sizes.begin() + operand.rank,
                     [](int64_t size) { return size == 0; });
}

SortPlan PlanOf(const SortedLines& lines, bool gpu) {
  SortPlan plan;
  plan.lines = lines;
  plan.key.type = lines.type;
  plan.key.wide = IsWide(lines.type, lines.n);
  plan.key.descending = lines.descending;
  plan.key.rank = lines.layout.rank;
  if (gpu) {
    plan.key.run_log2 = std::min(SortTile::kGpuLog2,
                                 static_cast<int>(std::bit_width(static_cast<uint64_t>(plan.lines.n - 1))));
    plan.tile = int64_t{1} << plan.key.run_log2;
  } else {
    plan.key.select = plan.lines.k <= SortTile::kMaxSelected &&
                      plan.lines.n >= 4 * std::max(plan.lines.k, SortTile::kSpare / 2);
    plan.key.dense = plan.key.select && lines.strides[2] == 1;
    plan.tile = std::min(plan.lines.n, plan.key.select ? kSelectTile : SortTile::kHost);
  }
  plan.key.last = plan.tile >= plan.lines.n;
  return plan;
}

// Returns whether sorting by digits is the faster way on a GPU, also if only the first few are wanted.
bool HasDigits(const SortedLines& lines) {
  return lines.n > kMinDigitsLine && lines.n <= std::numeric_limits<int32_t>::max();
}

SortPlanner::Cut HostCut(int64_t items, float nanoseconds) {
  return {items, SliceOf(items, nanoseconds, /*multiple=*/1)};
}

// Nanoseconds that the host takes for an element of a tile.
float TileCost(const SortPlan& plan) {
  const int64_t most = std::min(plan.lines.n, plan.tile);
  if (!plan.key.select) return 3.0f + 3.0f * static_cast<float>(std::bit_width(static_cast<uint64_t>(most)));
  const float sorts = 100.0f * static_cast<float>(plan.lines.k + SortTile::kSpare) / static_cast<float>(most);
  return (plan.key.dense ? 0.2f : 2.0f) + sorts;
}

SortArguments<Planned> ArgumentsFor(const OpCall& call, const SortPlan& plan) {
  SortArguments<Planned> arguments{};
  arguments.n = plan.lines.n;
  arguments.k = plan.lines.k;
  arguments.lines = plan.lines.layout.numel();
  arguments.after = RunsOf(plan, plan.tile);
  const auto sort = ops::Read<ops::SortCall>(call);
  arguments.values = sort.values->data;
  arguments.indices = sort.indices->data;
  arguments.self = sort.self->data;
  arguments.values_stride = plan.lines.strides[0];
  arguments.indices_stride = plan.lines.strides[1];
  arguments.self_stride = plan.lines.strides[2];
  SetSpace(plan.lines.layout, arguments.space);
  return arguments;
}

SortKey MergeKey(const SortPlan& plan, bool last) {
  SortKey key;
  key.wide = plan.key.wide;
  key.merges = true;
  key.last = last;
  if (!last) return key;
  key.type = BitsOf(ops::SizeOf(plan.key.type));
  key.rank = plan.key.rank;
  return key;
}

}  // namespace

// The kernels of a call; nullptr if there is no such kernel in it.
struct SortPlanner::Kernels {
  const Kernel* tiles = nullptr;
  const Kernel* middle = nullptr;  // merges into the workspace
  const Kernel* last = nullptr;    // merges into the result
};

absl::StatusOr<bool> SortPlanner::Find(const SortPlan& plan, Kernels& kernels) {
  const bool merges = !plan.key.last, merges_twice = merges && plan.tile * 2 < plan.lines.n;
  ASSIGN_OR_RETURN(kernels.tiles, cache_.Find(skeleton_, plan.key));
  if (merges) {
    ASSIGN_OR_RETURN(kernels.last, cache_.Find(skeleton_, MergeKey(plan, true)));
  }
  if (merges_twice) {
    ASSIGN_OR_RETURN(kernels.middle, cache_.Find(skeleton_, MergeKey(plan, false)));
  }
  return kernels.tiles != nullptr && (!merges || kernels.last != nullptr) &&
         (!merges_twice || kernels.middle != nullptr);
}

absl::StatusOr<Readiness> SortPlanner::Plan(const OpCall& call, Workspace workspace, LaunchList& launches) {
  if (IsEmpty(*ops::Read<ops::SortCall>(call).values)) return Readiness::kReady;
  const bool gpu = cache_.target() != Target::kHost;
  const SortedLines lines = LinesToSort(call);
  if (cache_.target() == Target::kNvptx && HasDigits(lines))
    return radix_.Plan(call, lines, workspace, launches);
  const SortPlan plan = PlanOf(lines, gpu);
  Kernels kernels;
  ASSIGN_OR_RETURN(const bool found, Find(plan, kernels));
  if (!found) return Readiness::kCompiling;

  SortArguments<Planned> arguments = ArgumentsFor(call, plan);
  const auto allocate = [&](const Runs& runs) {
    const int64_t words = arguments.lines * runs.pitch * (plan.key.wide ? 2 : 1);
    return workspace(static_cast<size_t>(words) * sizeof(uint64_t));
  };
  void *from = nullptr, *to = nullptr;
  if (kernels.last != nullptr) {
    ASSIGN_OR_RETURN(to, allocate(arguments.after));
  }
  if (kernels.middle != nullptr) {
    ASSIGN_OR_RETURN(from, allocate(RunsOf(plan, 2 * plan.tile)));
  }
  arguments.to = to;
  const int64_t tiles = arguments.lines * arguments.after.count, length = std::min(plan.lines.n, plan.tile);
  Add(kernels.tiles, plan.key, arguments,
      gpu ? Cut{tiles, SortTile::kGpu / plan.tile}
          : HostCut(tiles, TileCost(plan) * static_cast<float>(length)),
      launches);
  while (arguments.after.count > 1) {
    std::swap(from, to);
    arguments.from = from;
    arguments.to = to;
    AddMerge(plan, kernels, arguments, launches);
  }
  return Readiness::kReady;
}

void SortPlanner::AddMerge(const SortPlan& plan, const Kernels& kernels, SortArguments<Planned>& arguments,
                           LaunchList& launches) {
  const bool gpu = cache_.target() != Target::kHost;
  arguments.before = arguments.after;
  arguments.after = RunsOf(plan, 2 * arguments.before.covers);
  arguments.chunk = gpu ? kGpuChunk : kHostChunk;
  const int64_t chunks = CeilDiv(arguments.after.length, arguments.chunk);
  const int64_t items = arguments.lines * arguments.after.count * chunks;
  const auto length = static_cast<float>(std::min(arguments.chunk, arguments.after.length));
  const bool ends = arguments.after.count == 1;
  Add(ends ? kernels.last : kernels.middle, MergeKey(plan, ends), arguments,
      gpu ? Cut{items, kGpuLanes} : HostCut(items, 4.0f * length + 50.0f), launches);
}

void SortPlanner::Add(const Kernel* kernel, const SortKey& key, SortArguments<Planned>& arguments,
                      const Cut& cut, LaunchList& launches) {
  arguments.slice = cut.slice;
  Launch& launch = launches.Add();
  launch.Reset(kernel, CeilDiv(cut.items, cut.slice));
  if (cache_.target() != Target::kHost) launch.group_size = {kGpuLanes, 1, 1};
  PushArguments(key, arguments, launch);
}

constinit const PlannerFactory kSortPlanner = MakePlanner<SortPlanner>;

}  // namespace xpud::kernels
