// LLVM bitcode of math.c, embedded at build time. Immutable.
#pragma once

#include <string_view>

namespace xpud::kernels {

std::string_view MathBitcode();
// Returns a hash, as text, of the sources that determine generated code.
std::string_view SourceStamp();

}  // namespace xpud::kernels
