#include "drivers/cpu/testdata_object.h"

asm(".section .rodata\n"
    "xpud_kernels_object_begin: .incbin \"" XPUD_KERNELS_OBJECT
    "\"\n"
    "xpud_kernels_object_end: .byte 0\n"
    ".previous\n");

extern "C" const char xpud_kernels_object_begin[];
extern "C" const char xpud_kernels_object_end[];

namespace xpud::drivers::cpu {

std::string_view KernelsObject() {
  return {xpud_kernels_object_begin,
          static_cast<size_t>(xpud_kernels_object_end - xpud_kernels_object_begin)};
}

}  // namespace xpud::drivers::cpu
