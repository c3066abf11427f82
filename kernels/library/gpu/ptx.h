// The PTX of this folder's *.cu, compiled at build time. Static lifetime; thread-safe.
#pragma once

#include <string_view>

#include "proto/ops/dtype.h"

namespace xpud::gpu {

std::string_view ProductPtx();
// attention_mma.cu for a 16-bit type and depths up to `depth`, which must be 32, 64 or 128.
std::string_view AttentionMmaPtx(bool bfloat16, int depth, bool masked);
// attention_mma.cu with dropout.
std::string_view AttentionMmaDropoutPtx(bool bfloat16, int depth);
// attention_mma_gradient.cu, likewise.
std::string_view AttentionMmaGradientPtx(bool bfloat16, int depth);
// attention_wgmma.cu for depths up to 64 or 128.
std::string_view AttentionWgmmaPtx(bool bfloat16, int depth);
// attention_teams.cu, likewise.
std::string_view AttentionTeamsPtx(bool bfloat16, int depth);
std::string_view AttentionTeamsGradientPtx(bool bfloat16, int depth);
// attention_tiled.cu for depths up to `depth`, as above.
std::string_view AttentionTiledPtx(int depth);
// attention_one.cu for f32 or a 16-bit type.
std::string_view AttentionOnePtx(ops::DType type);
// attention_plain.cu.
std::string_view AttentionPlainPtx(ops::DType type);
// attention_gradient.cu.
std::string_view AttentionGradientPtx(ops::DType type);
// attention_merge.cu for f32 or a 16-bit type.
std::string_view AttentionMergePtx(ops::DType type);

}  // namespace xpud::gpu
