// LLVM bitcode of math.c and soft_double.c, embedded at build time. Immutable.
#pragma once

#include <string_view>

namespace xpud::kernels {

std::string_view MathBitcode();
std::string_view SoftDoubleBitcode();
// Returns a hash, as text, of the sources that determine generated code.
std::string_view SourceStamp();

}  // namespace xpud::kernels
