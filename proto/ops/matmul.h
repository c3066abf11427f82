// The attribute "activation" of family kMatmul: an Activation, and kDeterministicProduct if the product must
// not depend on what the device keeps.
#pragma once

#include "proto/ops/op_call.h"

namespace xpud::ops {

inline constexpr int64_t kDeterministicProduct = 256;

}  // namespace xpud::ops
