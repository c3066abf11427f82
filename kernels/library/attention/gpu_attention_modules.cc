#include "kernels/library/attention/gpu_attention_modules.h"

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/library/gpu/ptx.h"

namespace xpud::kernels::attention {
namespace {

using Entries = std::vector<std::string>;

constexpr int kDepths[] = {32, 64, 128};
constexpr ops::DType kTypes[] = {ops::DType::kFloat32, ops::DType::kFloat64, ops::DType::kBFloat16,
                                 ops::DType::kFloat16};

constexpr TiledShape kTiled32[] = {{"many", 128, 128}, {"some", 32, 128}, {"few", 16, 128}};
constexpr TiledShape kTiled64[] = {{"many", 64, 64}, {"few", 16, 64}};
constexpr TiledShape kTiled128[] = {{"many", 32, 64}, {"few", 16, 64}};
constexpr std::span<const TiledShape> kTiled[] = {kTiled32, kTiled64, kTiled128};

}  // namespace

size_t GpuAttentionModules::TypeIndex(ops::DType type) {
  static_assert(std::size(kTypes) == kTypeCount);
  return static_cast<size_t>(std::find(std::begin(kTypes), std::end(kTypes), type) - std::begin(kTypes));
}

size_t GpuAttentionModules::DepthIndex(const AttentionProblem& p) {
  static_assert(std::size(kDepths) == kDepthCount);
  const int64_t depth = std::max(p.depth, p.value_depth);
  return depth <= kDepths[0] ? 0 : depth <= kDepths[1] ? 1 : 2;
}

std::span<const TiledShape> GpuAttentionModules::TiledShapes(size_t depth) { return kTiled[depth]; }

GpuAttentionModules::GpuAttentionModules(KernelStore& store) {
  for (const ops::DType type : kTypes) {
    const size_t t = TypeIndex(type);
    plain_[t].emplace(store, gpu::AttentionPlainPtx(type), Entries{"attention_plain", "attention_wide"});
    gradient_[t].emplace(store, gpu::AttentionGradientPtx(type),
                         Entries{"attention_delta", "attention_gradient_keys", "attention_gradient_queries"});
    if (type == ops::DType::kFloat64) continue;
    merge_[t].emplace(store, gpu::AttentionMergePtx(type), Entries{"attention_merge"});
    one_[t].emplace(store, gpu::AttentionOnePtx(type),
                    Entries{"attention_one_32", "attention_one_64", "attention_one_128"});
  }
  for (size_t d = 0; d < kDepthCount; ++d) {
    Entries entries;
    for (const TiledShape& shape : kTiled[d]) entries.push_back(std::string("attention_tiled_") + shape.name);
    tiled_[d].emplace(store, gpu::AttentionTiledPtx(kDepths[d]), std::move(entries));
    for (const bool bfloat16 : {false, true}) AddMma(store, bfloat16, d, mma_[bfloat16][d]);
  }
}

void GpuAttentionModules::AddMma(KernelStore& store, bool bfloat16, size_t depth, Mma& modules) {
  const int d = kDepths[depth];
  modules.plain.emplace(store, gpu::AttentionMmaPtx(bfloat16, d, false),
                        Entries{"attention_mma_64", "attention_mma_128", "attention_mma_cut_64"});
  modules.masked.emplace(store, gpu::AttentionMmaPtx(bfloat16, d, true),
                         Entries{"attention_mma_masked_64", "attention_mma_masked_cut_64"});
  modules.dropout.emplace(store, gpu::AttentionMmaDropoutPtx(bfloat16, d),
                          Entries{"attention_mma_dropout_64", "attention_mma_masked_dropout_64"});
  modules.gradient.emplace(store, gpu::AttentionMmaGradientPtx(bfloat16, d),
                           Entries{"attention_mma_keys", "attention_mma_queries",
                                   "attention_mma_keys_general", "attention_mma_queries_general"});
  if (depth == 0) return;
  modules.wgmma.emplace(store, gpu::AttentionWgmmaPtx(bfloat16, d), Entries{"attention_wgmma"});
  modules.teams_gradient.emplace(store, gpu::AttentionTeamsGradientPtx(bfloat16, d),
                                 Entries{"attention_teams_keys", "attention_teams_queries"});
  modules.teams.emplace(store, gpu::AttentionTeamsPtx(bfloat16, d), Entries{"attention_teams"});
}

}  // namespace xpud::kernels::attention
