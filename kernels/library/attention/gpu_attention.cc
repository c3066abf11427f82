// The planner of kAttention, kTrainingAttention and kAttentionBackward on NVIDIA GPUs; the kernels are
// gpu/attention_*.cu.
#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/library/attention/attention_problem.h"
#include "kernels/library/gpu/attention_arguments.h"
#include "kernels/library/gpu/ptx.h"
#include "kernels/library/gpu/ptx_module.h"
#include "kernels/library/planners.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {
namespace attention {
namespace {

using gpu::AttentionArguments;
using gpu::AttentionGradientArguments;

constexpr int64_t kEnoughGroups = 264;  // two for each multiprocessor of an H100; then groups may be large
constexpr int64_t kLongSequence = 384;  // at depth 64, from which attention_teams' larger items pay
constexpr int64_t kPartMultiple = 64;
constexpr int64_t kMaxGroups = INT32_MAX;  // along x
constexpr int64_t kMaxSize = INT32_MAX - 1024;
constexpr int kDepths[] = {32, 64, 128};
constexpr ops::DType kTypes[] = {ops::DType::kFloat32, ops::DType::kFloat64, ops::DType::kBFloat16,
                                 ops::DType::kFloat16};

// The kernels of attention_tiled.cu for a depth, those with larger groups first.
struct Shape {
  const char* name;
  int rows;  // queries of a group
  int lanes;
};
constexpr Shape kTiled32[] = {{"many", 128, 128}, {"some", 32, 128}, {"few", 16, 128}};
constexpr Shape kTiled64[] = {{"many", 64, 64}, {"few", 16, 64}};
constexpr Shape kTiled128[] = {{"many", 32, 64}, {"few", 16, 64}};
constexpr std::span<const Shape> kTiled[] = {kTiled32, kTiled64, kTiled128};
// With this many groups, the kernel with more rows is used. Causal groups differ in length, so they need
// more.
constexpr int64_t kEnoughTiledGroups = 384;
constexpr int64_t kEnoughCausalGroups = 1024;

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

size_t TypeIndex(ops::DType type) {
  return static_cast<size_t>(std::find(std::begin(kTypes), std::end(kTypes), type) - std::begin(kTypes));
}

gpu::HeadStrides StridesOf(const HeadTensor& t) { return {t.batch, t.head, t.row, t.column}; }

void SetArguments(const AttentionProblem& p, AttentionArguments& a) {
  a.q = p.q.data;
  a.k = p.k.data;
  a.v = p.v.data;
  a.mask = p.mask.data;
  a.out = p.out.data;
  a.logsumexp = reinterpret_cast<float*>(p.logsumexp.data);
  a.q_strides = StridesOf(p.q);
  a.k_strides = StridesOf(p.k);
  a.v_strides = StridesOf(p.v);
  a.mask_strides = StridesOf(p.mask);
  a.out_strides = StridesOf(p.out);
  a.logsumexp_strides = StridesOf(p.logsumexp);
  a.batch = p.batch;
  a.heads = p.heads;
  a.queries = p.queries;
  a.keys = p.keys;
  a.depth = p.depth;
  a.value_depth = p.value_depth;
  a.heads_per_key_head = p.heads_per_key_head;
  a.scale = p.scale;
  a.causal = p.causal;
  if (p.mask.data != nullptr)
    a.mask_kind = p.mask_dtype == ops::DType::kBool ? gpu::MaskKind::kBool : gpu::MaskKind::kAdded;
  a.wide_logsumexp = p.wide_logsumexp;
  a.threshold = p.dropout.threshold;
  a.seed = p.dropout.seed;
  a.offset = p.dropout.offset;
  a.factor = p.dropout.factor;
}

AttentionArguments ArgumentsOf(const AttentionProblem& p) {
  AttentionArguments a = {};
  SetArguments(p, a);
  return a;
}

AttentionGradientArguments GradientArgumentsOf(const AttentionGradientProblem& p) {
  AttentionGradientArguments a = {};
  SetArguments(p, a);
  a.gradient = p.gradient.data;
  a.dq = p.dq.data;
  a.dk = p.dk.data;
  a.dv = p.dv.data;
  a.gradient_strides = StridesOf(p.gradient);
  a.dq_strides = StridesOf(p.dq);
  a.dk_strides = StridesOf(p.dk);
  a.dv_strides = StridesOf(p.dv);
  return a;
}

// Returns true if rows are contiguous and start at multiples of `bytes`.
bool RowsAligned(const HeadTensor& t, int64_t element, int64_t bytes) {
  const int64_t every = bytes / element;
  return t.column == 1 && t.row % every == 0 && t.head % every == 0 && t.batch % every == 0 &&
         reinterpret_cast<uintptr_t>(t.data) % static_cast<uint64_t>(bytes) == 0;
}

// Returns true if the kernels that copy tiles of rows, in chunks of 16 bytes, can run the problem.
bool FitsTiles(const AttentionProblem& p) {
  const int64_t element = ops::SizeOf(p.dtype), chunk = 16 / element;
  return p.depth % chunk == 0 && p.value_depth % chunk == 0 &&
         std::max(p.depth, p.value_depth) <= kDepths[2] && std::max(p.queries, p.keys) <= kMaxSize &&
         RowsAligned(p.q, element, 16) && RowsAligned(p.k, element, 16) && RowsAligned(p.v, element, 16) &&
         RowsAligned(p.out, element, element == 2 ? 4 : 16);
}

// Returns true if a tensor map can describe the tensor. For a dimension of size 1 it is given another stride.
bool FitsTensorMap(const HeadTensor& t, int64_t batch, int64_t heads) {
  constexpr int64_t kBeyond = int64_t{1} << 38;
  const auto fits = [](int64_t size, int64_t stride) {
    return size == 1 || (stride > 0 && stride < kBeyond);
  };
  return fits(batch, t.batch) && fits(heads, t.head) && fits(0, t.row);
}
gpu::HeadStrides TensorMapStrides(const HeadTensor& t, int64_t batch, int64_t heads) {
  return {batch == 1 ? t.row : t.batch, heads == 1 ? t.row : t.head, t.row, t.column};
}

// Returns true if the gradients' kernels on tensor cores can run the problem.
bool FitsTensorCores(const AttentionGradientProblem& p) {
  const auto written = [](const HeadTensor& t) { return RowsAligned(t, 2, 4); };
  return ops::SizeOf(p.dtype) == 2 && p.depth % 8 == 0 && p.value_depth % 8 == 0 &&
         std::max(p.depth, p.value_depth) <= kDepths[2] && std::max(p.queries, p.keys) <= kMaxSize &&
         RowsAligned(p.q, 2, 16) && RowsAligned(p.k, 2, 16) && RowsAligned(p.v, 2, 16) &&
         RowsAligned(p.gradient, 2, 16) && written(p.dq) && written(p.dk) && written(p.dv);
}

bool FitsTensorCores(const AttentionProblem& p) {
  return ops::SizeOf(p.dtype) == 2 && FitsTiles(p) && (p.mask.data != nullptr || p.scale > 0);
}

size_t DepthIndex(const AttentionProblem& p) {
  const int64_t depth = std::max(p.depth, p.value_depth);
  return depth <= kDepths[0] ? 0 : depth <= kDepths[1] ? 1 : 2;
}

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

class GpuAttention : public Planner {
 public:
  GpuAttention(KernelStore& store, bool hopper, int multiprocessors)
      : hopper_(hopper), multiprocessors_(multiprocessors) {
    using Entries = std::vector<std::string>;
    for (const ops::DType type : kTypes) {
      const size_t t = TypeIndex(type);
      plain_[t].emplace(store, gpu::AttentionPlainPtx(type), Entries{"attention_plain", "attention_wide"});
      gradient_[t].emplace(
          store, gpu::AttentionGradientPtx(type),
          Entries{"attention_delta", "attention_gradient_keys", "attention_gradient_queries"});
      if (type != ops::DType::kFloat64)
        merge_[t].emplace(store, gpu::AttentionMergePtx(type), Entries{"attention_merge"});
      if (type != ops::DType::kFloat64)
        one_[t].emplace(store, gpu::AttentionOnePtx(type),
                        Entries{"attention_one_32", "attention_one_64", "attention_one_128"});
    }
    for (size_t d = 0; d < std::size(kDepths); ++d) {
      Entries entries;
      for (const Shape& shape : kTiled[d]) entries.push_back(std::string("attention_tiled_") + shape.name);
      tiled_[d].emplace(store, gpu::AttentionTiledPtx(kDepths[d]), std::move(entries));
      for (size_t bfloat16 = 0; bfloat16 < 2; ++bfloat16) {
        Mma& modules = mma_[bfloat16][d];
        modules.plain.emplace(store, gpu::AttentionMmaPtx(bfloat16 != 0, kDepths[d], false),
                              Entries{"attention_mma_64", "attention_mma_128", "attention_mma_cut_64"});
        modules.masked.emplace(store, gpu::AttentionMmaPtx(bfloat16 != 0, kDepths[d], true),
                               Entries{"attention_mma_masked_64", "attention_mma_masked_cut_64"});
        modules.dropout.emplace(store, gpu::AttentionMmaDropoutPtx(bfloat16 != 0, kDepths[d]),
                                Entries{"attention_mma_dropout_64", "attention_mma_masked_dropout_64"});
        modules.gradient.emplace(store, gpu::AttentionMmaGradientPtx(bfloat16 != 0, kDepths[d]),
                                 Entries{"attention_mma_keys", "attention_mma_queries",
                                         "attention_mma_keys_general", "attention_mma_queries_general"});
        if (d == 0) continue;
        modules.hopper.emplace(store, gpu::AttentionWgmmaPtx(bfloat16 != 0, kDepths[d]),
                               Entries{"attention_wgmma"});
        modules.teams_gradient.emplace(store, gpu::AttentionTeamsGradientPtx(bfloat16 != 0, kDepths[d]),
                                       Entries{"attention_teams_keys", "attention_teams_queries"});
        modules.teams.emplace(store, gpu::AttentionTeamsPtx(bfloat16 != 0, kDepths[d]),
                              Entries{"attention_teams"});
      }
    }
  }

  bool Serves(ops::Family family) const override {
    return family == ops::Family::kAttention || family == ops::Family::kTrainingAttention ||
           family == ops::Family::kAttentionBackward;
  }

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override {
    if (call.row->family == ops::Family::kAttentionBackward) return PlanGradient(call, workspace, launches);
    ASSIGN_OR_RETURN(const AttentionProblem problem, ReadAttention(call));
    if (problem.Empty() || problem.value_depth == 0) return Readiness::kReady;
    RETURN_IF_ERROR(CheckGroups(problem, problem.queries));
    AttentionArguments arguments = ArgumentsOf(problem);
    if (problem.dropout.threshold != 0) return LaunchDropout(problem, arguments, launches);
    if (problem.queries == 1 && problem.dtype != ops::DType::kFloat64 && FitsTiles(problem))
      return LaunchOne(problem, arguments, workspace, launches);
    if (FitsTensorCores(problem)) return LaunchMma(problem, arguments, workspace, launches);
    if (problem.dtype == ops::DType::kFloat32 && FitsTiles(problem))
      return LaunchTiled(problem, arguments, workspace, launches);
    return LaunchPlain(problem, arguments, launches);
  }

 private:
  struct Mma {
    std::optional<PtxModule> plain;  // kernels with 64 and 128 queries in a group, and with 64 and cut keys
    std::optional<PtxModule> masked;
    std::optional<PtxModule> dropout, gradient;
    std::optional<PtxModule> hopper, teams, teams_gradient;  // depths above 32
  };

  // `rows` are those of a head.
  static absl::Status CheckGroups(const AttentionProblem& p, int64_t rows) {
    if (p.batch * p.heads <= kMaxGroups / std::max<int64_t>(1, rows)) return absl::OkStatus();
    return absl::UnimplementedError("attention of more than 2^31 rows in all on a GPU");
  }

  absl::StatusOr<Readiness> PlanGradient(const OpCall& call, Workspace workspace, LaunchList& launches) {
    ASSIGN_OR_RETURN(const AttentionGradientProblem p, ReadAttentionGradient(call));
    if (p.batch == 0 || p.heads == 0) return Readiness::kReady;
    RETURN_IF_ERROR(CheckGroups(p, std::max(p.queries, p.keys)));
    ASSIGN_OR_RETURN(const Kernel* const delta, gradient_[TypeIndex(p.dtype)]->Find(0));
    if (delta == nullptr) return Readiness::kCompiling;
    AttentionGradientArguments arguments = GradientArgumentsOf(p);
    const bool tensor_cores = FitsTensorCores(p);
    const int64_t rows = p.batch * p.heads * p.queries, sum = SumBytes(p);
    if (rows > 0) {
      ASSIGN_OR_RETURN(void* const memory,
                       workspace(static_cast<size_t>(rows * sum * (tensor_cores ? 2 : 1))));
      arguments.delta = memory;
      if (tensor_cores) arguments.base = static_cast<float*>(memory) + rows;
      LaunchGradient({delta, AttentionGradientArguments::kDeltaLanes}, arguments,
                     CeilDivide(rows, AttentionGradientArguments::kDeltaRows), 1, launches);
    }
    if (!tensor_cores) return LaunchPlainGradient(p, arguments, launches);
    if (SuitsTeams(p) && FitsTensorMap(p.gradient, p.batch, p.heads)) {
      PtxModule& module = *mma_[p.dtype == ops::DType::kBFloat16][DepthIndex(p)].teams_gradient;
      // Otherwise the driver's compiler is too old for tensor maps.
      if (module.Find(0).ok()) return LaunchTeamsGradient(module, p, arguments, workspace, launches);
    }
    return LaunchMmaGradient(p, arguments, launches);
  }

  static int64_t SumBytes(const AttentionProblem& p) {
    return p.dtype == ops::DType::kFloat64 ? sizeof(double) : sizeof(float);
  }

  absl::StatusOr<Readiness> LaunchMmaGradient(const AttentionGradientProblem& p,
                                              const AttentionGradientArguments& arguments,
                                              LaunchList& launches) {
    PtxModule& module = *mma_[p.dtype == ops::DType::kBFloat16][DepthIndex(p)].gradient;
    const size_t general = p.mask.data != nullptr || p.dropout.threshold != 0 ? 2 : 0;
    ASSIGN_OR_RETURN(const Kernel* const keys, module.Find(general));
    ASSIGN_OR_RETURN(const Kernel* const queries, module.Find(general + 1));
    if (keys == nullptr || queries == nullptr) return Readiness::kCompiling;
    constexpr int64_t kRows = AttentionGradientArguments::kMmaRows;
    constexpr int kLanes = AttentionGradientArguments::kMmaLanes;
    LaunchGradient({keys, kLanes}, arguments, p.batch * p.KeyHeads() * CeilDivide(p.keys, kRows), 1,
                   launches);
    LaunchGradient({queries, kLanes}, arguments, p.batch * p.heads * CeilDivide(p.queries, kRows), 1,
                   launches);
    return Readiness::kReady;
  }

  absl::StatusOr<Readiness> LaunchTeamsGradient(PtxModule& module, const AttentionGradientProblem& p,
                                                AttentionGradientArguments& arguments, Workspace workspace,
                                                LaunchList& launches) const {
    ASSIGN_OR_RETURN(const Kernel* const keys, module.Find(0));
    ASSIGN_OR_RETURN(const Kernel* const queries, module.Find(1));
    if (keys == nullptr || queries == nullptr) return Readiness::kCompiling;
    constexpr int64_t kRows = AttentionGradientArguments::kTeams * AttentionGradientArguments::kTeamRows;
    constexpr int kLanes = (AttentionGradientArguments::kTeams + 1) * AttentionGradientArguments::kTeamLanes;
    RETURN_IF_ERROR(MakeMaps<AttentionGradientArguments>(p, multiprocessors_, arguments, workspace));
    arguments.gradient_strides = TensorMapStrides(p.gradient, p.batch, p.heads);
    LaunchGradient({keys, kLanes}, arguments,
                   std::min<int64_t>(multiprocessors_, p.batch * p.KeyHeads() * CeilDivide(p.keys, kRows)), 1,
                   launches);
    LaunchGradient({queries, kLanes}, arguments, std::min<int64_t>(multiprocessors_, TeamItems(p)), 1,
                   launches);
    return Readiness::kReady;
  }

  // Sets the arguments for `groups` groups that make tensor maps of q, k and v.
  template <typename Arguments>
  static absl::Status MakeMaps(const AttentionProblem& p, int64_t groups, Arguments& arguments,
                               Workspace workspace) {
    const int64_t key_heads = p.heads / p.heads_per_key_head;
    ASSIGN_OR_RETURN(arguments.maps, workspace(static_cast<size_t>(groups * Arguments::kTeamMapBytes)));
    arguments.q_strides = TensorMapStrides(p.q, p.batch, p.heads);
    arguments.k_strides = TensorMapStrides(p.k, p.batch, key_heads);
    arguments.v_strides = TensorMapStrides(p.v, p.batch, key_heads);
    return absl::OkStatus();
  }

  absl::StatusOr<Readiness> LaunchPlainGradient(const AttentionGradientProblem& p,
                                                const AttentionGradientArguments& arguments,
                                                LaunchList& launches) {
    PtxModule& module = *gradient_[TypeIndex(p.dtype)];
    ASSIGN_OR_RETURN(const Kernel* const keys, module.Find(1));
    ASSIGN_OR_RETURN(const Kernel* const queries, module.Find(2));
    if (keys == nullptr || queries == nullptr) return Readiness::kCompiling;
    constexpr int64_t kColumns = AttentionGradientArguments::kPlainColumns;
    constexpr int kLanes = AttentionGradientArguments::kPlainLanes;
    const int64_t side = AttentionGradientArguments::kPlainSide * 4 / SumBytes(p);
    LaunchGradient({keys, kLanes}, arguments, p.batch * p.KeyHeads() * CeilDivide(p.keys, side),
                   CeilDivide(std::max(p.depth, p.value_depth), kColumns), launches);
    LaunchGradient({queries, kLanes}, arguments, p.batch * p.heads * CeilDivide(p.queries, side),
                   CeilDivide(p.depth, kColumns), launches);
    return Readiness::kReady;
  }

  struct Entry {
    const Kernel* kernel;
    int lanes;
  };
  static void LaunchGradient(const Entry& entry, const AttentionGradientArguments& arguments, int64_t x,
                             int64_t y, LaunchList& launches) {
    if (x == 0 || y == 0) return;
    Launch& launch = launches.Add();
    launch.Reset(entry.kernel, x, y);
    launch.group_size = {static_cast<uint32_t>(entry.lanes), 1, 1};
    launch.Push(arguments);
  }
  absl::StatusOr<Readiness> LaunchDropout(const AttentionProblem& p, AttentionArguments& arguments,
                                          LaunchList& launches) {
    if (!FitsTensorCores(p)) return LaunchPlain(p, arguments, launches);
    Mma& modules = mma_[p.dtype == ops::DType::kBFloat16][DepthIndex(p)];
    ASSIGN_OR_RETURN(const Kernel* const kernel, modules.dropout->Find(p.mask.data != nullptr ? 1 : 0));
    if (kernel == nullptr) return Readiness::kCompiling;
    LaunchOver(kernel, arguments, 64, 1, AttentionArguments::kMmaLanes, launches);
    return Readiness::kReady;
  }

  absl::StatusOr<Readiness> LaunchPlain(const AttentionProblem& problem, AttentionArguments& arguments,
                                        LaunchList& launches) {
    const int64_t depth = std::max(problem.depth, problem.value_depth),
                  slice = AttentionArguments::kPlainSlice;
    const int64_t spread =
        static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(CeilDivide(depth, slice))));
    const int64_t wide = problem.dtype == ops::DType::kFloat64 ? sizeof(double) : sizeof(float);
    const bool fits = spread <= 32 && AttentionArguments::kPlainStep * spread * slice * wide <=
                                          AttentionArguments::kPlainTileBytes;
    arguments.spread = static_cast<int32_t>(spread);
    ASSIGN_OR_RETURN(const Kernel* kernel, plain_[TypeIndex(problem.dtype)]->Find(fits ? 0 : 1));
    if (kernel == nullptr) return Readiness::kCompiling;
    if (fits)
      LaunchOver(kernel, arguments, AttentionArguments::kPlainLanes / spread, 1,
                 AttentionArguments::kPlainLanes, launches);
    else
      LaunchOver(kernel, arguments, 1, CeilDivide(problem.value_depth, AttentionArguments::kWideColumns),
                 AttentionArguments::kWideLanes, launches);
    return Readiness::kReady;
  }

  absl::StatusOr<Readiness> LaunchOne(const AttentionProblem& p, AttentionArguments& arguments,
                                      Workspace workspace, LaunchList& launches) {
    ASSIGN_OR_RETURN(const Kernel* kernel, one_[TypeIndex(p.dtype)]->Find(DepthIndex(p)));
    return LaunchCut({kernel, 1, AttentionArguments::kOneLanes, kOneCut}, p, arguments, workspace, launches);
  }

  absl::StatusOr<Readiness> LaunchMma(const AttentionProblem& p, AttentionArguments& arguments,
                                      Workspace workspace, LaunchList& launches) {
    const size_t d = DepthIndex(p);
    Mma& modules = mma_[p.dtype == ops::DType::kBFloat16][d];
    const bool masked = p.mask.data != nullptr;
    constexpr int64_t kRows = 64;  // rows of a tensor instruction
    if (SuitsTeams(p) && (d > 1 || std::min(p.queries, p.keys) >= kLongSequence)) {
      const auto kernel = modules.teams->Find(0);
      // Otherwise the driver's compiler is too old for tensor maps.
      if (kernel.ok()) return LaunchTeams(*kernel, p, arguments, workspace, launches);
    }
    if (hopper_ && d > 0 && !masked && p.queries >= kRows) {
      ASSIGN_OR_RETURN(const Kernel* kernel, modules.hopper->Find(0));
      return LaunchCut({kernel, kRows, AttentionArguments::kMmaLanes}, p, arguments, workspace, launches);
    }
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

  static int64_t TeamItems(const AttentionProblem& p) {
    return p.batch * p.heads *
           CeilDivide(p.queries, AttentionArguments::kTeams * AttentionArguments::kTeamRows);
  }

  // Returns true if teams can attend, and their items keep most multiprocessors busy.
  bool SuitsTeams(const AttentionProblem& p) const {
    const int64_t key_heads = p.heads / p.heads_per_key_head;
    return hopper_ && DepthIndex(p) > 0 && p.mask.data == nullptr && p.dropout.threshold == 0 && p.keys > 0 &&
           TeamItems(p) * 8 >= 5 * multiprocessors_ && FitsTensorMap(p.q, p.batch, p.heads) &&
           FitsTensorMap(p.k, p.batch, key_heads) && FitsTensorMap(p.v, p.batch, key_heads);
  }

  // `kernel` is nullptr if it is not ready.
  absl::StatusOr<Readiness> LaunchTeams(const Kernel* kernel, const AttentionProblem& p,
                                        AttentionArguments& arguments, Workspace workspace,
                                        LaunchList& launches) const {
    if (kernel == nullptr) return Readiness::kCompiling;
    const int64_t groups = std::min<int64_t>(multiprocessors_, TeamItems(p));
    RETURN_IF_ERROR(MakeMaps(p, groups, arguments, workspace));
    Launch& launch = launches.Add();
    launch.Reset(kernel, groups);
    launch.group_size = {(AttentionArguments::kTeams + 1) * AttentionArguments::kTeamLanes, 1, 1};
    launch.Push(arguments);
    return Readiness::kReady;
  }

  absl::StatusOr<Readiness> LaunchTiled(const AttentionProblem& p, AttentionArguments& arguments,
                                        Workspace workspace, LaunchList& launches) {
    const size_t d = DepthIndex(p);
    const int64_t heads = p.batch * p.heads, enough = p.causal ? kEnoughCausalGroups : kEnoughTiledGroups;
    const std::span<const Shape> shapes = kTiled[d];
    size_t at = 0;  // the largest tiles that keep the device busy
    while (at + 1 < shapes.size() && heads * CeilDivide(p.queries, shapes[at].rows) < enough) ++at;
    ASSIGN_OR_RETURN(const Kernel* kernel, tiled_[d]->Find(at));
    return LaunchCut({kernel, shapes[at].rows, shapes[at].lanes}, p, arguments, workspace, launches);
  }

  // A kernel that can cut keys.
  struct Tiles {
    const Kernel* kernel;  // nullptr: not ready
    int64_t rows;          // queries of a group
    int lanes;
    Cut cut = kTilesCut;
  };

  absl::StatusOr<Readiness> LaunchCut(const Tiles& tiles, const AttentionProblem& p,
                                      AttentionArguments& arguments, Workspace workspace,
                                      LaunchList& launches) {
    const int64_t queries = p.batch * p.heads * p.queries;
    int64_t parts = PartsOf(p, p.batch * p.heads * CeilDivide(p.queries, tiles.rows), tiles.cut);
    const Kernel* merge = nullptr;
    if (parts > 1) {
      ASSIGN_OR_RETURN(merge, merge_[TypeIndex(p.dtype)]->Find(0));
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

  static void LaunchMerge(const Kernel* kernel, const AttentionArguments& arguments, int64_t parts,
                          int64_t queries, LaunchList& launches) {
    Launch& launch = launches.Add();
    launch.Reset(kernel, queries);
    launch.group_size = {AttentionArguments::kMergeLanes, 1, 1};
    launch.Push(arguments);
    launch.Push(static_cast<int32_t>(parts));
  }

  static void LaunchOver(const Kernel* kernel, const AttentionArguments& arguments, int64_t queries,
                         int64_t y, int lanes, LaunchList& launches) {
    Launch& launch = launches.Add();
    launch.Reset(kernel, arguments.batch * arguments.heads * CeilDivide(arguments.queries, queries), y);
    launch.group_size = {static_cast<uint32_t>(lanes), 1, 1};
    launch.Push(arguments);
  }

  const bool hopper_;
  const int multiprocessors_;
  std::array<std::optional<PtxModule>, std::size(kTypes)> plain_, gradient_, merge_, one_;  // by TypeIndex
  std::array<std::optional<PtxModule>, std::size(kDepths)> tiled_;
  Mma mma_[2][std::size(kDepths)];  // [bfloat16][depth]
};

}  // namespace
}  // namespace attention

std::unique_ptr<Planner> CreateGpuAttention(KernelStore& store, const std::string& processor, int workers) {
  return std::make_unique<attention::GpuAttention>(store, processor == "sm_90", workers);
}

}  // namespace xpud::kernels
