// The planner of kAttention on NVIDIA GPUs; the kernels are gpu/attention_*.cu.
#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <string>
#include <vector>

#include "kernels/library/attention/attention_problem.h"
#include "kernels/library/gpu/attention_arguments.h"
#include "kernels/library/gpu/ptx.h"
#include "kernels/library/gpu/ptx_module.h"
#include "kernels/planner.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {
namespace attention {
namespace {

using gpu::AttentionArguments;

constexpr int64_t kEnoughGroups = 264;  // two for each multiprocessor of an H100: then a group may be large
constexpr int64_t kMostGroups = INT32_MAX;  // along x
constexpr int64_t kLargestSize = INT32_MAX - 1024;
constexpr int kDepths[] = {32, 64, 128};
constexpr ops::DType kTypes[] = {ops::DType::kFloat32, ops::DType::kFloat64, ops::DType::kBFloat16,
                                 ops::DType::kFloat16};

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

size_t TypeIndex(ops::DType type) {
  return static_cast<size_t>(std::find(std::begin(kTypes), std::end(kTypes), type) - std::begin(kTypes));
}

gpu::HeadStrides StridesOf(const HeadTensor& t) { return {t.batch, t.head, t.row, t.column}; }

AttentionArguments ArgumentsOf(const AttentionProblem& p) {
  AttentionArguments a = {};
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
  return a;
}

// Rows lie at multiples of `bytes`, their elements one after another.
bool RowsAligned(const HeadTensor& t, int64_t element, int64_t bytes) {
  const int64_t every = bytes / element;
  return t.column == 1 && t.row % every == 0 && t.head % every == 0 && t.batch % every == 0 &&
         reinterpret_cast<uintptr_t>(t.data) % static_cast<uint64_t>(bytes) == 0;
}

bool FitsTensorCores(const AttentionProblem& p) {
  if (p.mask.data == nullptr && !(p.scale > 0)) return false;
  if (ops::SizeOf(p.dtype) != 2 || p.depth % 8 != 0 || p.value_depth % 8 != 0) return false;
  if (std::max(p.depth, p.value_depth) > kDepths[2] || std::max(p.queries, p.keys) > kLargestSize)
    return false;
  return RowsAligned(p.q, 2, 16) && RowsAligned(p.k, 2, 16) && RowsAligned(p.v, 2, 16) &&
         RowsAligned(p.out, 2, 4);
}

class GpuAttention : public Planner {
 public:
  explicit GpuAttention(KernelStore& store) {
    for (const ops::DType type : kTypes)
      plain_[TypeIndex(type)].emplace(store, gpu::AttentionPlainPtx(type),
                                      std::vector<std::string>{"attention_plain", "attention_wide"});
    for (size_t bfloat16 = 0; bfloat16 < 2; ++bfloat16)
      for (size_t d = 0; d < std::size(kDepths); ++d) {
        Mma& modules = mma_[bfloat16][d];
        modules.plain.emplace(store, gpu::AttentionMmaPtx(bfloat16 != 0, kDepths[d], false),
                              std::vector<std::string>{"attention_mma_64", "attention_mma_128"});
        modules.masked.emplace(store, gpu::AttentionMmaPtx(bfloat16 != 0, kDepths[d], true),
                               std::vector<std::string>{"attention_mma_masked_64"});
      }
  }

  bool Serves(ops::Family family) const override { return family == ops::Family::kAttention; }

  absl::StatusOr<Readiness> Plan(const OpCall& call, KernelLibrary::Workspace,
                                 LaunchList& launches) override {
    ASSIGN_OR_RETURN(const AttentionProblem problem, ReadAttention(call));
    if (problem.Empty() || problem.value_depth == 0) return Readiness::kReady;
    if (problem.batch * problem.heads > kMostGroups / std::max<int64_t>(1, problem.queries))
      return absl::UnimplementedError("attention of more than 2^31 queries in all on a GPU");
    AttentionArguments arguments = ArgumentsOf(problem);
    if (FitsTensorCores(problem)) return LaunchMma(problem, arguments, launches);
    return LaunchPlain(problem, arguments, launches);
  }

 private:
  struct Mma {
    std::optional<PtxModule> plain;  // kernels of 64 and 128 queries a group
    std::optional<PtxModule> masked;
  };

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

  absl::StatusOr<Readiness> LaunchMma(const AttentionProblem& p, const AttentionArguments& arguments,
                                      LaunchList& launches) {
    const int64_t depth = std::max(p.depth, p.value_depth);
    Mma& modules = mma_[p.dtype == ops::DType::kBFloat16][depth <= 32 ? 0 : depth <= 64 ? 1 : 2];
    const bool masked = p.mask.data != nullptr;
    // Measured: at depth 32 more warps are worth more than fewer reads of k and v; causal groups of 128 at
    // depth 128 wait.
    const bool worth = depth > 32 && (depth <= 64 || !p.causal);
    const bool many =
        worth && !masked && p.queries > 64 && p.batch * p.heads * CeilDivide(p.queries, 128) >= kEnoughGroups;
    ASSIGN_OR_RETURN(const Kernel* kernel, masked ? modules.masked->Find(0) : modules.plain->Find(many));
    if (kernel == nullptr) return Readiness::kCompiling;
    LaunchOver(kernel, arguments, many ? 128 : 64, 1, AttentionArguments::kMmaLanes, launches);
    return Readiness::kReady;
  }

  static void LaunchOver(const Kernel* kernel, const AttentionArguments& arguments, int64_t queries,
                         int64_t y, int lanes, LaunchList& launches) {
    Launch& launch = launches.Add();
    launch.Reset(
        kernel,
        static_cast<uint32_t>(arguments.batch * arguments.heads * CeilDivide(arguments.queries, queries)),
        static_cast<uint32_t>(y));
    launch.group_size = {static_cast<uint32_t>(lanes), 1, 1};
    launch.Push(arguments);
  }

  std::array<std::optional<PtxModule>, std::size(kTypes)> plain_;  // by TypeIndex
  Mma mma_[2][std::size(kDepths)];                                 // [bfloat16][depth]
};

}  // namespace
}  // namespace attention

std::unique_ptr<Planner> CreateGpuAttention(KernelStore& store) {
  return std::make_unique<attention::GpuAttention>(store);
}

}  // namespace xpud::kernels
