// For tests: the relocatable object of testdata_kernels.c, as bytes.
#pragma once

#include <string_view>

namespace xpud::drivers::cpu {

std::string_view KernelsObject();

}  // namespace xpud::drivers::cpu
