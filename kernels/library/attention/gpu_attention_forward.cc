#include "kernels/library/attention/gpu_attention_forward.h"

#include <algorithm>
#include <bit>
#include <span>

namespace xpud::kernels::attention {
namespace {

constexpr int64_t kEnoughGroups = 264;  // two for each multiprocessor of an H100; then groups may be large
constexpr int64_t kLongSequence = 384;  // at depth 64, from which attention_teams' larger items pay
constexpr int64_t kPartMultiple = 64;
// With this many groups, the kernel of attention_tiled.cu with more rows is used. Causal groups differ in
// length, so they need more.
constexpr int64_t kEnoughTiledGroups = 384;
constexpr int64_t kEnoughCausalGroups = 1024;

// When keys are cut into parts: if there are too few groups for all multiprocessors.
struct Cut {
  int64_t enough;  // groups
  int64_t least;   // minimum of keys in a part
  int64_t worth;   // keys; with fewer, merging the parts would take longer
};
constexpr Cut kTilesCut = {kEnoughGroups * 3 / 8, 256, 1024};
constexpr Cut kOneCut = {kEnoughGroups, 128, 256};

int64_t PartsOf(const AttentionProblem& p, int64_t groups, const Cut& cut) {
  if (groups >= cut.enough || p.keys < cut.worth) return 1;
  const int64_t most = std::min<int64_t>(AttentionArguments::kMaxParts, CeilDivide(2 * cut.enough, groups));
  return std::clamp<int64_t>(p.keys / cut.least, 1, most);
}

void LaunchOver(const Kernel* kernel, const AttentionArguments& arguments, int64_t queries, int64_t y,
                int lanes, LaunchList& launches) {
  Launch& launch = launches.Add();
  launch.Reset(kernel, arguments.batch * arguments.heads * CeilDivide(arguments.queries, queries), y);
  launch.group_size = {static_cast<uint32_t>(lanes), 1, 1};
  launch.Push(arguments);
}

void LaunchMerge(const Kernel* kernel, const AttentionArguments& arguments, int64_t parts, int64_t queries,
                 LaunchList& launches) {
  Launch& launch = launches.Add();
  launch.Reset(kernel, queries);
  launch.group_size = {AttentionArguments::kMergeLanes, 1, 1};
  launch.Push(arguments);
  launch.Push(static_cast<int32_t>(parts));
}

}  // namespace

struct GpuAttentionForward::Tiles {
  const Kernel* kernel;  // nullptr: not ready
  int64_t rows;          // queries of a group
  int lanes;
  Cut cut = kTilesCut;
};

absl::StatusOr<Readiness> GpuAttentionForward::Plan(const AttentionProblem& p, Workspace workspace,
                                                    LaunchList& launches) {
  AttentionArguments arguments = ArgumentsOf(p);
  if (p.dropout.threshold != 0) return LaunchDropout(p, arguments, launches);
  if (p.queries == 1 && p.dtype != ops::DType::kFloat64 && FitsTiles(p))
    return LaunchOne(p, arguments, workspace, launches);
  if (FitsTensorCores(p)) return LaunchTensorCores(p, arguments, workspace, launches);
  if (p.dtype == ops::DType::kFloat32 && FitsTiles(p)) return LaunchTiled(p, arguments, workspace, launches);
  return LaunchPlain(p, arguments, launches);
}

absl::StatusOr<Readiness> GpuAttentionForward::LaunchDropout(const AttentionProblem& p,
                                                             AttentionArguments& arguments,
                                                             LaunchList& launches) {
  if (!FitsTensorCores(p)) return LaunchPlain(p, arguments, launches);
  ASSIGN_OR_RETURN(const Kernel* const kernel,
                   modules_.MmaOf(p).dropout->Find(p.mask.data != nullptr ? 1 : 0));
  if (kernel == nullptr) return Readiness::kCompiling;
  LaunchOver(kernel, arguments, 64, 1, AttentionArguments::kMmaLanes, launches);
  return Readiness::kReady;
}

absl::StatusOr<Readiness> GpuAttentionForward::LaunchOne(const AttentionProblem& p,
                                                         AttentionArguments& arguments, Workspace workspace,
                                                         LaunchList& launches) {
  ASSIGN_OR_RETURN(const Kernel* kernel, modules_.One(p.dtype).Find(GpuAttentionModules::DepthIndex(p)));
  return LaunchCut({kernel, 1, AttentionArguments::kOneLanes, kOneCut}, p, arguments, workspace, launches);
}

absl::StatusOr<Readiness> GpuAttentionForward::LaunchTensorCores(const AttentionProblem& p,
                                                                 AttentionArguments& arguments,
                                                                 Workspace workspace, LaunchList& launches) {
  GpuAttentionModules::Mma& modules = modules_.MmaOf(p);
  const size_t depth = GpuAttentionModules::DepthIndex(p);
  constexpr int64_t kRows = 64;  // rows of a tensor instruction
  if (SuitsTeams(p, gpu_) && (depth > 1 || std::min(p.queries, p.keys) >= kLongSequence)) {
    const auto kernel = modules.teams->Find(0);
    // Otherwise the driver's compiler is too old for tensor maps.
    if (kernel.ok()) return LaunchTeams(*kernel, p, arguments, workspace, launches);
  }
  if (gpu_.hopper && depth > 0 && p.mask.data == nullptr && p.queries >= kRows) {
    ASSIGN_OR_RETURN(const Kernel* kernel, modules.wgmma->Find(0));
    return LaunchCut({kernel, kRows, AttentionArguments::kMmaLanes}, p, arguments, workspace, launches);
  }
  return LaunchMma(p, arguments, workspace, launches);
}

absl::StatusOr<Readiness> GpuAttentionForward::LaunchMma(const AttentionProblem& p,
                                                         AttentionArguments& arguments, Workspace workspace,
                                                         LaunchList& launches) {
  GpuAttentionModules::Mma& modules = modules_.MmaOf(p);
  const bool masked = p.mask.data != nullptr;
  const int64_t depth = std::max(p.depth, p.value_depth);
  // Measured: at depth 32, more warps gain more than fewer reads of k and v; at depth 128, causal groups of
  // 128 wait.
  const bool worth = depth > 32 && (depth <= 64 || !p.causal);
  const bool many =
      worth && !masked && p.queries > 64 && p.batch * p.heads * CeilDivide(p.queries, 128) >= kEnoughGroups;
  const bool cut = PartsOf(p, p.batch * p.heads * CeilDivide(p.queries, many ? 128 : 64), kTilesCut) > 1;
  ASSIGN_OR_RETURN(const Kernel* kernel, masked ? modules.masked->Find(cut)
                                                : modules.plain->Find(cut    ? 2
                                                                      : many ? 1
                                                                             : 0));
  return LaunchCut({kernel, many ? 128 : 64, AttentionArguments::kMmaLanes}, p, arguments, workspace,
                   launches);
}

absl::StatusOr<Readiness> GpuAttentionForward::LaunchTeams(const Kernel* kernel, const AttentionProblem& p,
                                                           AttentionArguments& arguments, Workspace workspace,
                                                           LaunchList& launches) const {
  if (kernel == nullptr) return Readiness::kCompiling;
  const int64_t groups = std::min<int64_t>(gpu_.multiprocessors, TeamItems(p));
  RETURN_IF_ERROR(MakeMaps(p, groups, arguments, workspace));
  Launch& launch = launches.Add();
  launch.Reset(kernel, groups);
  launch.group_size = {(AttentionArguments::kTeams + 1) * AttentionArguments::kTeamLanes, 1, 1};
  launch.Push(arguments);
  return Readiness::kReady;
}

absl::StatusOr<Readiness> GpuAttentionForward::LaunchTiled(const AttentionProblem& p,
                                                           AttentionArguments& arguments, Workspace workspace,
                                                           LaunchList& launches) {
  const size_t depth = GpuAttentionModules::DepthIndex(p);
  const int64_t heads = p.batch * p.heads, enough = p.causal ? kEnoughCausalGroups : kEnoughTiledGroups;
  const std::span<const TiledShape> shapes = GpuAttentionModules::TiledShapes(depth);
  size_t at = 0;  // the largest tiles that keep the device busy
  while (at + 1 < shapes.size() && heads * CeilDivide(p.queries, shapes[at].rows) < enough) ++at;
  ASSIGN_OR_RETURN(const Kernel* kernel, modules_.Tiled(depth).Find(at));
  return LaunchCut({kernel, shapes[at].rows, shapes[at].lanes}, p, arguments, workspace, launches);
}

absl::StatusOr<Readiness> GpuAttentionForward::LaunchPlain(const AttentionProblem& p,
                                                           AttentionArguments& arguments,
                                                           LaunchList& launches) {
  const int64_t depth = std::max(p.depth, p.value_depth), slice = AttentionArguments::kPlainSlice;
  const int64_t spread = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(CeilDivide(depth, slice))));
  const int64_t wide = p.dtype == ops::DType::kFloat64 ? sizeof(double) : sizeof(float);
  const bool fits = spread <= 32 && AttentionArguments::kPlainStep * spread * slice * wide <=
                                        AttentionArguments::kPlainTileBytes;
  arguments.spread = static_cast<int32_t>(spread);
  ASSIGN_OR_RETURN(const Kernel* kernel, modules_.Plain(p.dtype).Find(fits ? 0 : 1));
  if (kernel == nullptr) return Readiness::kCompiling;
  if (fits)
    LaunchOver(kernel, arguments, AttentionArguments::kPlainLanes / spread, 1,
               AttentionArguments::kPlainLanes, launches);
  else
    LaunchOver(kernel, arguments, 1, CeilDivide(p.value_depth, AttentionArguments::kWideColumns),
               AttentionArguments::kWideLanes, launches);
  return Readiness::kReady;
}

absl::StatusOr<Readiness> GpuAttentionForward::LaunchCut(const Tiles& tiles, const AttentionProblem& p,
                                                         AttentionArguments& arguments, Workspace workspace,
                                                         LaunchList& launches) {
  const int64_t queries = p.batch * p.heads * p.queries;
  int64_t parts = PartsOf(p, p.batch * p.heads * CeilDivide(p.queries, tiles.rows), tiles.cut);
  const Kernel* merge = nullptr;
  if (parts > 1) {
    ASSIGN_OR_RETURN(merge, modules_.Merge(p.dtype).Find(0));
  }
  if (tiles.kernel == nullptr || (parts > 1 && merge == nullptr)) return Readiness::kCompiling;
  if (parts > 1) {
    arguments.keys_per_part = CeilDivide(CeilDivide(p.keys, parts), kPartMultiple) * kPartMultiple;
    parts = CeilDivide(p.keys, arguments.keys_per_part);
    ASSIGN_OR_RETURN(void* memory,
                     workspace(static_cast<size_t>(parts * queries * (p.value_depth + 1)) * sizeof(float)));
    arguments.parts = static_cast<float*>(memory);
  }
  LaunchOver(tiles.kernel, arguments, tiles.rows, parts, tiles.lanes, launches);
  if (parts > 1) LaunchMerge(merge, arguments, parts, queries, launches);
  return Readiness::kReady;
}

}  // namespace xpud::kernels::attention
