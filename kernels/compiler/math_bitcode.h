// LLVM bitcode of math.c, embedded at build time. Immutable.
#pragma once

#include <string_view>

namespace xpud::kernels {

std::string_view MathBitcode();
// Hash of the sources that determine generated code, as text.
std::string_view SourceStamp();

}  // namespace xpud::kernels
