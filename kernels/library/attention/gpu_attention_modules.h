// The modules of gpu/attention_*.cu, each of one element type and depth. The library's thread only.
#pragma once

#include <array>
#include <optional>
#include <span>

#include "kernels/library/attention/attention_problem.h"
#include "kernels/library/gpu/ptx_module.h"

namespace xpud::kernels::attention {

// The kernels of attention_tiled.cu for a depth, those with larger groups first.
struct TiledShape {
  const char* name;
  int rows;  // queries of a group
  int lanes;
};

class GpuAttentionModules {
 public:
  // Depths up to 32, 64 and 128.
  static constexpr size_t kDepthCount = 3;
  static size_t DepthIndex(const AttentionProblem& p);
  static std::span<const TiledShape> TiledShapes(size_t depth);

  // Of 16-bit types on tensor cores. The order of a module's kernels is that of the comments.
  struct Mma {
    std::optional<PtxModule> plain;     // 64 and 128 queries in a group, 64 and cut keys
    std::optional<PtxModule> masked;    // 64 queries, 64 and cut keys
    std::optional<PtxModule> dropout;   // without a mask, with a mask
    std::optional<PtxModule> gradient;  // keys, queries, and both with a mask or dropout
    // Depths above 32:
    std::optional<PtxModule> wgmma, teams;
    std::optional<PtxModule> teams_gradient;  // keys, queries
  };

  explicit GpuAttentionModules(KernelStore& store);

  PtxModule& Plain(ops::DType type) { return *plain_[TypeIndex(type)]; }        // a query in few lanes, wide
  PtxModule& Gradient(ops::DType type) { return *gradient_[TypeIndex(type)]; }  // delta, keys, queries
  PtxModule& Merge(ops::DType type) { return *merge_[TypeIndex(type)]; }        // not f64
  PtxModule& One(ops::DType type) { return *one_[TypeIndex(type)]; }            // by DepthIndex; not f64
  PtxModule& Tiled(size_t depth) { return *tiled_[depth]; }                     // by TiledShapes
  Mma& MmaOf(const AttentionProblem& p) { return mma_[p.dtype == ops::DType::kBFloat16][DepthIndex(p)]; }

 private:
  static constexpr size_t kTypeCount = 4;
  static size_t TypeIndex(ops::DType type);
  static void AddMma(KernelStore& store, bool bfloat16, size_t depth, Mma& modules);

  std::array<std::optional<PtxModule>, kTypeCount> plain_, gradient_, merge_, one_;
  std::array<std::optional<PtxModule>, kDepthCount> tiled_;
  Mma mma_[2][kDepthCount];  // [bfloat16][depth]
};

}  // namespace xpud::kernels::attention
