// Tests only: testdata_kernels.c as the bytes of a relocatable object.
#pragma once

#include <string_view>

namespace xpud::drivers::cpu {

std::string_view KernelsObject();

}  // namespace xpud::drivers::cpu
