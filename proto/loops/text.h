// Loop kernels as text for people: in logs, in profiles and where a kernel is refused.
#pragma once

#include <string>

#include "proto/loops/kernel.h"

namespace xpud::loops {

// One line for each operand, loop and statement, such as `v3 = call mul.float32 v1 v2`. Any kernel that
// Decode returns has a text.
std::string TextOf(const Kernel& kernel);

}  // namespace xpud::loops
