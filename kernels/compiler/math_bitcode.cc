#include "kernels/compiler/math_bitcode.h"

#include "source_stamp.inc"

// CMake defines the path of the file.
asm(".section .rodata\n"
    ".balign 16\n"
    "xpud_math_bitcode_begin:\n"
    ".incbin \"" XPUD_MATH_BITCODE
    "\"\n"
    "xpud_math_bitcode_end:\n"
    ".byte 0\n"
    ".previous\n");

extern "C" {
extern const char xpud_math_bitcode_begin[] __attribute__((visibility("hidden")));
extern const char xpud_math_bitcode_end[] __attribute__((visibility("hidden")));
}

namespace xpud::kernels {

std::string_view MathBitcode() {
  return {xpud_math_bitcode_begin, static_cast<size_t>(xpud_math_bitcode_end - xpud_math_bitcode_begin)};
}

std::string_view SourceStamp() { return XPUD_KERNEL_SOURCE_STAMP; }

}  // namespace xpud::kernels
