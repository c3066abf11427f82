#include "kernels/families/radix_sort.h"

#include <algorithm>

#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/order.h"

namespace xpud::kernels {

namespace {

constexpr int64_t kDigits = RadixKey::kDigits;
constexpr int64_t kFewTiles = kWarpLanes;

// Small tiles use a device better if there is little to sort. Large ones write longer pieces.
int ItemsOf(const SortedLines& lines) {
  constexpr int64_t kFewElements = 1 << 18;
  for (const int items : {4, 8, 16})
    if (lines.n <= items * int64_t{kGpuLanes}) return items;
  if (lines.n * lines.layout.numel() <= kFewElements) return 8;
  // Of 64 bits, more do not fit in shared memory.
  return ops::SizeOf(lines.type) == 8 ? 12 : 16;
}

int64_t TilesOf(const SortedLines& lines) { return CeilDiv(lines.n, int64_t{kGpuLanes} * ItemsOf(lines)); }

RadixKey KeyOf(const SortedLines& lines, RadixStage stage, int64_t pass) {
  const int64_t passes = RadixKey::PassesOf(lines.type);
  RadixKey key;
  key.stage = stage;
  key.few = TilesOf(lines) <= kFewTiles;
  key.first = pass == 0 && stage != RadixStage::kScan;
  key.last = pass == passes - 1 && stage == RadixStage::kPlace;
  key.skips = passes > 2;
  if (stage == RadixStage::kScan) return key;
  key.items = ItemsOf(lines);
  key.type = BitsOf(ops::SizeOf(lines.type));
  if (!key.first && !key.last) return key;
  key.type = lines.type;
  key.descending = lines.descending;
  key.rank = lines.layout.rank;
  return key;
}

RadixArguments<Planned> ArgumentsFor(const OpCall& call, const SortedLines& lines) {
  RadixArguments<Planned> arguments{};
  arguments.n = lines.n;
  arguments.k = lines.k;
  arguments.lines = lines.layout.numel();
  arguments.tiles = TilesOf(lines);
  arguments.passes = RadixKey::PassesOf(lines.type);
  const auto sort = ops::Read<ops::SortCall>(call);
  arguments.values = sort.values->data;
  arguments.indices = sort.indices->data;
  arguments.self = sort.self->data;
  arguments.values_stride = lines.strides[0];
  arguments.indices_stride = lines.strides[1];
  arguments.self_stride = lines.strides[2];
  SetSpace(lines.layout, arguments.space);
  return arguments;
}

absl::Status Allocate(const SortedLines& lines, Workspace workspace, RadixArguments<Planned>& arguments) {
  const auto allocate = [&](int64_t count, size_t size) {
    return workspace(static_cast<size_t>(count) * size);
  };
  const int64_t passes = RadixKey::PassesOf(lines.type);
  const int64_t all = arguments.lines * arguments.n + int64_t{kGpuLanes} * ItemsOf(lines);
  for (size_t half = 0; half < 2 && static_cast<int64_t>(half) < passes - 1; ++half) {
    ASSIGN_OR_RETURN(arguments.keys[half], allocate(all, ops::SizeOf(lines.type)));
    ASSIGN_OR_RETURN(arguments.positions[half], allocate(all, sizeof(int32_t)));
  }
  const int64_t tiles = arguments.lines * arguments.tiles;
  ASSIGN_OR_RETURN(arguments.counts, allocate(tiles * kDigits, sizeof(int32_t)));
  ASSIGN_OR_RETURN(arguments.totals, allocate(arguments.lines * kDigits, sizeof(int32_t)));
  ASSIGN_OR_RETURN(arguments.changes, allocate(tiles, sizeof(int64_t)));
  ASSIGN_OR_RETURN(arguments.varying, allocate(arguments.lines, sizeof(int64_t)));
  return absl::OkStatus();
}

void Add(const Kernel* kernel, const RadixKey& key, int64_t groups, RadixArguments<Planned>& arguments,
         LaunchList& launches) {
  Launch& launch = launches.Add();
  launch.Reset(kernel, groups);
  launch.group_size = {kGpuLanes, 1, 1};
  PushArguments(key, arguments, launch);
}

}  // namespace

// The kernels of a call: of the first, the middle and the last pass. A single pass is a first one.
struct RadixSort::Kernels {
  std::array<const Kernel*, 3> count{}, place{};
  const Kernel* scan = nullptr;  // unless the tiles are few

  static size_t NumberOf(int64_t pass, int64_t passes) { return pass == 0 ? 0 : pass == passes - 1 ? 2 : 1; }
};

absl::StatusOr<bool> RadixSort::Find(const SortedLines& lines, Kernels& kernels) {
  const int64_t passes = RadixKey::PassesOf(lines.type);
  bool found = true;
  if (const RadixKey scan = KeyOf(lines, RadixStage::kScan, 0); !scan.few) {
    ASSIGN_OR_RETURN(kernels.scan, cache_.Find(skeleton_, scan));
    found = kernels.scan != nullptr;
  }
  for (const int64_t pass : {int64_t{0}, std::min(int64_t{1}, passes - 1), passes - 1}) {
    const size_t at = Kernels::NumberOf(pass, passes);
    ASSIGN_OR_RETURN(kernels.count[at], cache_.Find(skeleton_, KeyOf(lines, RadixStage::kCount, pass)));
    ASSIGN_OR_RETURN(kernels.place[at], cache_.Find(skeleton_, KeyOf(lines, RadixStage::kPlace, pass)));
    found = found && kernels.count[at] != nullptr && kernels.place[at] != nullptr;
  }
  return found;
}

absl::StatusOr<Readiness> RadixSort::PlanLines(const OpCall& call, const SortedLines& lines,
                                               LaunchList& launches) {
  RadixKey key;
  key.stage = RadixStage::kLine;
  key.type = lines.type;
  key.descending = lines.descending;
  key.first = key.last = true;
  key.rank = lines.layout.rank;
  key.items = ItemsOf(lines);
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key));
  if (kernel == nullptr) return Readiness::kCompiling;
  RadixArguments<Planned> arguments = ArgumentsFor(call, lines);
  Add(kernel, key, arguments.lines, arguments, launches);
  return Readiness::kReady;
}

absl::StatusOr<Readiness> RadixSort::Plan(const OpCall& call, const SortedLines& lines, Workspace workspace,
                                          LaunchList& launches) {
  if (TilesOf(lines) == 1) return PlanLines(call, lines, launches);
  Kernels kernels;
  ASSIGN_OR_RETURN(const bool found, Find(lines, kernels));
  if (!found) return Readiness::kCompiling;
  RadixArguments<Planned> arguments = ArgumentsFor(call, lines);
  RETURN_IF_ERROR(Allocate(lines, workspace, arguments));
  const int64_t passes = arguments.passes, groups = arguments.lines * arguments.tiles;
  for (int64_t pass = 0; pass < passes; ++pass) {
    const size_t at = Kernels::NumberOf(pass, passes);
    arguments.pass = pass;
    Add(kernels.count[at], KeyOf(lines, RadixStage::kCount, pass), groups, arguments, launches);
    if (kernels.scan != nullptr)
      Add(kernels.scan, KeyOf(lines, RadixStage::kScan, pass), arguments.lines * kDigits / kGpuWarps,
          arguments, launches);
    Add(kernels.place[at], KeyOf(lines, RadixStage::kPlace, pass), groups, arguments, launches);
  }
  return Readiness::kReady;
}

}  // namespace xpud::kernels
