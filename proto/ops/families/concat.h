// Concatenation along a dimension: out[.., sum of sizes, ..] <- tensors, whose other sizes equal out's. Each
// tensor is converted to out's type.
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

template <typename T>
struct ConcatCall {
  T out{};
  int64_t dim = 0;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out");
    visitor.InputList("tensors");
    visitor.Dimension(named.dim, "dim");
  }
};

}  // namespace xpud::ops
