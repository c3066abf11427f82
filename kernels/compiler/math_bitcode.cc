#include "kernels/compiler/math_bitcode.h"

#include "source_stamp.inc"

// CMake defines the paths of the files.
#define XPUD_EMBED(name, file)      \
  asm(".section .rodata\n"          \
      ".balign 16\n" name           \
      "_begin:\n"                   \
      ".incbin \"" file "\"\n" name \
      "_end:\n"                     \
      ".byte 0\n"                   \
      ".previous\n")
XPUD_EMBED("xpud_math_bitcode", XPUD_MATH_BITCODE);
XPUD_EMBED("xpud_soft_double_bitcode", XPUD_SOFT_DOUBLE_BITCODE);

#define XPUD_EMBEDDED(name)                                               \
  extern const char name##_begin[] __attribute__((visibility("hidden"))); \
  extern const char name##_end[] __attribute__((visibility("hidden")))
extern "C" {
XPUD_EMBEDDED(xpud_math_bitcode);
XPUD_EMBEDDED(xpud_soft_double_bitcode);
}

namespace xpud::kernels {
namespace {

std::string_view Between(const char* begin, const char* end) {
  return {begin, static_cast<size_t>(end - begin)};
}

}  // namespace

std::string_view MathBitcode() { return Between(xpud_math_bitcode_begin, xpud_math_bitcode_end); }

std::string_view SoftDoubleBitcode() {
  return Between(xpud_soft_double_bitcode_begin, xpud_soft_double_bitcode_end);
}

std::string_view SourceStamp() { return XPUD_KERNEL_SOURCE_STAMP; }

}  // namespace xpud::kernels
