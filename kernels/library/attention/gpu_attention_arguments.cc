#include "kernels/library/attention/gpu_attention_arguments.h"

#include <algorithm>

namespace xpud::kernels::attention {
namespace {

constexpr int64_t kMaxSize = INT32_MAX - 1024;

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

// Returns true if rows are contiguous and start at multiples of `bytes`.
bool RowsAligned(const HeadTensor& t, int64_t element, int64_t bytes) {
  const int64_t every = bytes / element;
  return t.column == 1 && t.row % every == 0 && t.head % every == 0 && t.batch % every == 0 &&
         reinterpret_cast<uintptr_t>(t.data) % static_cast<uint64_t>(bytes) == 0;
}

}  // namespace

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

bool FitsTiles(const AttentionProblem& p) {
  const int64_t element = ops::SizeOf(p.dtype), chunk = 16 / element;
  return p.depth % chunk == 0 && p.value_depth % chunk == 0 &&
         std::max(p.depth, p.value_depth) <= kMaxTileDepth && std::max(p.queries, p.keys) <= kMaxSize &&
         RowsAligned(p.q, element, 16) && RowsAligned(p.k, element, 16) && RowsAligned(p.v, element, 16) &&
         RowsAligned(p.out, element, element == 2 ? 4 : 16);
}

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

bool FitsTensorCores(const AttentionGradientProblem& p) {
  const auto written = [](const HeadTensor& t) { return RowsAligned(t, 2, 4); };
  return ops::SizeOf(p.dtype) == 2 && p.depth % 8 == 0 && p.value_depth % 8 == 0 &&
         std::max(p.depth, p.value_depth) <= kMaxTileDepth && std::max(p.queries, p.keys) <= kMaxSize &&
         RowsAligned(p.q, 2, 16) && RowsAligned(p.k, 2, 16) && RowsAligned(p.v, 2, 16) &&
         RowsAligned(p.gradient, 2, 16) && written(p.dq) && written(p.dk) && written(p.dv);
}

bool FitsTensorCores(const AttentionProblem& p) {
  return ops::SizeOf(p.dtype) == 2 && FitsTiles(p) && (p.mask.data != nullptr || p.scale > 0);
}

int64_t TeamItems(const AttentionProblem& p) {
  return p.batch * p.heads *
         CeilDivide(p.queries, AttentionArguments::kTeams * AttentionArguments::kTeamRows);
}

bool SuitsTeams(const AttentionProblem& p, const Gpu& gpu) {
  constexpr int64_t kSmallDepth = 32;  // up to which there are no teams
  return gpu.hopper && std::max(p.depth, p.value_depth) > kSmallDepth && p.mask.data == nullptr &&
         p.dropout.threshold == 0 && p.keys > 0 && TeamItems(p) * 8 >= 5 * gpu.multiprocessors &&
         FitsTensorMap(p.q, p.batch, p.heads) && FitsTensorMap(p.k, p.batch, p.KeyHeads()) &&
         FitsTensorMap(p.v, p.batch, p.KeyHeads());
}

}  // namespace xpud::kernels::attention
