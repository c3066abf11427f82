#include "kernels/library/gpu/ptx.h"

#include <cstddef>

// CMake defines the paths of the files.
#define XPUD_EMBED(name, path)                                                                              \
  asm(".section .rodata\n"                                                                                  \
      ".balign 16\n"                                                                                        \
      "xpud_ptx_" #name                                                                                     \
      "_begin:\n"                                                                                           \
      ".incbin \"" path                                                                                     \
      "\"\n"                                                                                                \
      "xpud_ptx_" #name                                                                                     \
      "_end:\n"                                                                                             \
      ".byte 0\n"                                                                                           \
      ".previous\n");                                                                                       \
  extern "C" {                                                                                              \
  extern const char xpud_ptx_##name##_begin[] __attribute__((visibility("hidden")));                        \
  extern const char xpud_ptx_##name##_end[] __attribute__((visibility("hidden")));                          \
  }                                                                                                         \
  static std::string_view Embedded_##name() {                                                               \
    return {xpud_ptx_##name##_begin, static_cast<size_t>(xpud_ptx_##name##_end - xpud_ptx_##name##_begin)}; \
  }

XPUD_EMBED(product, XPUD_PTX_FOLDER "/product.ptx")
XPUD_EMBED(bfloat16_32, XPUD_PTX_FOLDER "/attention_mma_BFloat16_32.ptx")
XPUD_EMBED(bfloat16_64, XPUD_PTX_FOLDER "/attention_mma_BFloat16_64.ptx")
XPUD_EMBED(bfloat16_128, XPUD_PTX_FOLDER "/attention_mma_BFloat16_128.ptx")
XPUD_EMBED(float16_32, XPUD_PTX_FOLDER "/attention_mma_Float16_32.ptx")
XPUD_EMBED(float16_64, XPUD_PTX_FOLDER "/attention_mma_Float16_64.ptx")
XPUD_EMBED(float16_128, XPUD_PTX_FOLDER "/attention_mma_Float16_128.ptx")
XPUD_EMBED(masked_bfloat16_32, XPUD_PTX_FOLDER "/attention_mma_masked_BFloat16_32.ptx")
XPUD_EMBED(masked_bfloat16_64, XPUD_PTX_FOLDER "/attention_mma_masked_BFloat16_64.ptx")
XPUD_EMBED(masked_bfloat16_128, XPUD_PTX_FOLDER "/attention_mma_masked_BFloat16_128.ptx")
XPUD_EMBED(masked_float16_32, XPUD_PTX_FOLDER "/attention_mma_masked_Float16_32.ptx")
XPUD_EMBED(masked_float16_64, XPUD_PTX_FOLDER "/attention_mma_masked_Float16_64.ptx")
XPUD_EMBED(masked_float16_128, XPUD_PTX_FOLDER "/attention_mma_masked_Float16_128.ptx")
XPUD_EMBED(dropout_bfloat16_32, XPUD_PTX_FOLDER "/attention_mma_dropout_BFloat16_32.ptx")
XPUD_EMBED(dropout_bfloat16_64, XPUD_PTX_FOLDER "/attention_mma_dropout_BFloat16_64.ptx")
XPUD_EMBED(dropout_bfloat16_128, XPUD_PTX_FOLDER "/attention_mma_dropout_BFloat16_128.ptx")
XPUD_EMBED(dropout_float16_32, XPUD_PTX_FOLDER "/attention_mma_dropout_Float16_32.ptx")
XPUD_EMBED(dropout_float16_64, XPUD_PTX_FOLDER "/attention_mma_dropout_Float16_64.ptx")
XPUD_EMBED(dropout_float16_128, XPUD_PTX_FOLDER "/attention_mma_dropout_Float16_128.ptx")
XPUD_EMBED(mma_gradient_bfloat16_32, XPUD_PTX_FOLDER "/attention_mma_gradient_BFloat16_32.ptx")
XPUD_EMBED(mma_gradient_bfloat16_64, XPUD_PTX_FOLDER "/attention_mma_gradient_BFloat16_64.ptx")
XPUD_EMBED(mma_gradient_bfloat16_128, XPUD_PTX_FOLDER "/attention_mma_gradient_BFloat16_128.ptx")
XPUD_EMBED(mma_gradient_float16_32, XPUD_PTX_FOLDER "/attention_mma_gradient_Float16_32.ptx")
XPUD_EMBED(mma_gradient_float16_64, XPUD_PTX_FOLDER "/attention_mma_gradient_Float16_64.ptx")
XPUD_EMBED(mma_gradient_float16_128, XPUD_PTX_FOLDER "/attention_mma_gradient_Float16_128.ptx")
XPUD_EMBED(wgmma_bfloat16_64, XPUD_PTX_FOLDER "/attention_wgmma_BFloat16_64.ptx")
XPUD_EMBED(wgmma_bfloat16_128, XPUD_PTX_FOLDER "/attention_wgmma_BFloat16_128.ptx")
XPUD_EMBED(wgmma_float16_64, XPUD_PTX_FOLDER "/attention_wgmma_Float16_64.ptx")
XPUD_EMBED(wgmma_float16_128, XPUD_PTX_FOLDER "/attention_wgmma_Float16_128.ptx")
XPUD_EMBED(teams_bfloat16_64, XPUD_PTX_FOLDER "/attention_teams_BFloat16_64.ptx")
XPUD_EMBED(teams_bfloat16_128, XPUD_PTX_FOLDER "/attention_teams_BFloat16_128.ptx")
XPUD_EMBED(teams_float16_64, XPUD_PTX_FOLDER "/attention_teams_Float16_64.ptx")
XPUD_EMBED(teams_float16_128, XPUD_PTX_FOLDER "/attention_teams_Float16_128.ptx")
XPUD_EMBED(teams_gradient_bfloat16_64, XPUD_PTX_FOLDER "/attention_teams_gradient_BFloat16_64.ptx")
XPUD_EMBED(teams_gradient_bfloat16_128, XPUD_PTX_FOLDER "/attention_teams_gradient_BFloat16_128.ptx")
XPUD_EMBED(teams_gradient_float16_64, XPUD_PTX_FOLDER "/attention_teams_gradient_Float16_64.ptx")
XPUD_EMBED(teams_gradient_float16_128, XPUD_PTX_FOLDER "/attention_teams_gradient_Float16_128.ptx")
XPUD_EMBED(tiled_32, XPUD_PTX_FOLDER "/attention_tiled_32.ptx")
XPUD_EMBED(tiled_64, XPUD_PTX_FOLDER "/attention_tiled_64.ptx")
XPUD_EMBED(tiled_128, XPUD_PTX_FOLDER "/attention_tiled_128.ptx")
XPUD_EMBED(one_float32, XPUD_PTX_FOLDER "/attention_one_float.ptx")
XPUD_EMBED(one_bfloat16, XPUD_PTX_FOLDER "/attention_one_BFloat16.ptx")
XPUD_EMBED(one_float16, XPUD_PTX_FOLDER "/attention_one_Float16.ptx")
XPUD_EMBED(merge_float32, XPUD_PTX_FOLDER "/attention_merge_float.ptx")
XPUD_EMBED(merge_bfloat16, XPUD_PTX_FOLDER "/attention_merge_BFloat16.ptx")
XPUD_EMBED(merge_float16, XPUD_PTX_FOLDER "/attention_merge_Float16.ptx")
XPUD_EMBED(gradient_float32, XPUD_PTX_FOLDER "/attention_gradient_float.ptx")
XPUD_EMBED(gradient_float64, XPUD_PTX_FOLDER "/attention_gradient_double.ptx")
XPUD_EMBED(gradient_bfloat16, XPUD_PTX_FOLDER "/attention_gradient_BFloat16.ptx")
XPUD_EMBED(gradient_float16, XPUD_PTX_FOLDER "/attention_gradient_Float16.ptx")
XPUD_EMBED(plain_float32, XPUD_PTX_FOLDER "/attention_plain_float.ptx")
XPUD_EMBED(plain_float64, XPUD_PTX_FOLDER "/attention_plain_double.ptx")
XPUD_EMBED(plain_bfloat16, XPUD_PTX_FOLDER "/attention_plain_BFloat16.ptx")
XPUD_EMBED(plain_float16, XPUD_PTX_FOLDER "/attention_plain_Float16.ptx")

namespace xpud::gpu {

std::string_view ProductPtx() { return Embedded_product(); }

std::string_view AttentionMmaPtx(bool bfloat16, int depth, bool masked) {
  const int d = depth == 32 ? 0 : depth == 64 ? 1 : 2;
  const std::string_view modules[2][2][3] = {
      {{Embedded_float16_32(), Embedded_float16_64(), Embedded_float16_128()},
       {Embedded_bfloat16_32(), Embedded_bfloat16_64(), Embedded_bfloat16_128()}},
      {{Embedded_masked_float16_32(), Embedded_masked_float16_64(), Embedded_masked_float16_128()},
       {Embedded_masked_bfloat16_32(), Embedded_masked_bfloat16_64(), Embedded_masked_bfloat16_128()}}};
  return modules[masked][bfloat16][d];
}

std::string_view AttentionMmaDropoutPtx(bool bfloat16, int depth) {
  const int d = depth == 32 ? 0 : depth == 64 ? 1 : 2;
  const std::string_view modules[2][3] = {
      {Embedded_dropout_float16_32(), Embedded_dropout_float16_64(), Embedded_dropout_float16_128()},
      {Embedded_dropout_bfloat16_32(), Embedded_dropout_bfloat16_64(), Embedded_dropout_bfloat16_128()}};
  return modules[bfloat16][d];
}

std::string_view AttentionMmaGradientPtx(bool bfloat16, int depth) {
  const int d = depth == 32 ? 0 : depth == 64 ? 1 : 2;
  const std::string_view modules[2][3] = {
      {Embedded_mma_gradient_float16_32(), Embedded_mma_gradient_float16_64(),
       Embedded_mma_gradient_float16_128()},
      {Embedded_mma_gradient_bfloat16_32(), Embedded_mma_gradient_bfloat16_64(),
       Embedded_mma_gradient_bfloat16_128()}};
  return modules[bfloat16][d];
}

std::string_view AttentionWgmmaPtx(bool bfloat16, int depth) {
  if (bfloat16) return depth == 64 ? Embedded_wgmma_bfloat16_64() : Embedded_wgmma_bfloat16_128();
  return depth == 64 ? Embedded_wgmma_float16_64() : Embedded_wgmma_float16_128();
}

std::string_view AttentionTeamsPtx(bool bfloat16, int depth) {
  if (bfloat16) return depth == 64 ? Embedded_teams_bfloat16_64() : Embedded_teams_bfloat16_128();
  return depth == 64 ? Embedded_teams_float16_64() : Embedded_teams_float16_128();
}

std::string_view AttentionTeamsGradientPtx(bool bfloat16, int depth) {
  if (bfloat16)
    return depth == 64 ? Embedded_teams_gradient_bfloat16_64() : Embedded_teams_gradient_bfloat16_128();
  return depth == 64 ? Embedded_teams_gradient_float16_64() : Embedded_teams_gradient_float16_128();
}

std::string_view AttentionTiledPtx(int depth) {
  return depth == 32 ? Embedded_tiled_32() : depth == 64 ? Embedded_tiled_64() : Embedded_tiled_128();
}

std::string_view AttentionOnePtx(ops::DType type) {
  return type == ops::DType::kFloat32    ? Embedded_one_float32()
         : type == ops::DType::kBFloat16 ? Embedded_one_bfloat16()
                                         : Embedded_one_float16();
}

std::string_view AttentionMergePtx(ops::DType type) {
  return type == ops::DType::kFloat32    ? Embedded_merge_float32()
         : type == ops::DType::kBFloat16 ? Embedded_merge_bfloat16()
                                         : Embedded_merge_float16();
}

std::string_view AttentionPlainPtx(ops::DType type) {
  switch (type) {
    case ops::DType::kFloat64:
      return Embedded_plain_float64();
    case ops::DType::kBFloat16:
      return Embedded_plain_bfloat16();
    case ops::DType::kFloat16:
      return Embedded_plain_float16();
    default:
      return Embedded_plain_float32();
  }
}

std::string_view AttentionGradientPtx(ops::DType type) {
  switch (type) {
    case ops::DType::kFloat64:
      return Embedded_gradient_float64();
    case ops::DType::kBFloat16:
      return Embedded_gradient_bfloat16();
    case ops::DType::kFloat16:
      return Embedded_gradient_float16();
    default:
      return Embedded_gradient_float32();
  }
}

}  // namespace xpud::gpu
