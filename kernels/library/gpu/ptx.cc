#include "kernels/library/gpu/ptx.h"

#include <cstddef>

// The files' paths come from CMake.
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

namespace xpud::gpu {

std::string_view ProductPtx() { return Embedded_product(); }

}  // namespace xpud::gpu
