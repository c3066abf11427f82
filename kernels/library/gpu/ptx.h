// The PTX of this folder's *.cu, compiled at build time. Static lifetime, any thread.
#pragma once

#include <string_view>

namespace xpud::gpu {

std::string_view ProductPtx();

}  // namespace xpud::gpu
