// A call of a loop kernel (proto/loops), which the client defined before on the same ring.
// out: the kernel's operands that it writes, in their order; in: the others, scalars as immediates. Tensors
// have one dimension without gaps: all elements that the kernel may address, from the operand's first one.
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

template <typename T>
struct LoopCall {
  int64_t kernel = 0;  // its id
  Integers sizes;      // the kernel's integer arguments

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.OutputList("out");
    visitor.InputList("in");
    visitor.Attribute(named.kernel, "kernel");
    visitor.Attribute(named.sizes, "sizes");
  }
};

}  // namespace xpud::ops
