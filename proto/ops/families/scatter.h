// Scatter along `dim`: element index[n] of a line of out becomes the row's formula of it and of source[n], in
// the order of n: out[S] (in place) <- index[I], source[I] of any type, or a number. A line is one along dim.
// I has the rank of S, and except in dim no size exceeds that of S.
//
// In any order: a device may take the entries of the index in another order each time, as it is fastest.
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

template <typename T>
struct ScatterCall {
  T out{}, index{}, source{};
  int64_t dim = 0;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out", kUpdated);
    visitor.Input(named.index, "index", kIndices);
    visitor.Input(named.source, "source");
    visitor.Dimension(named.dim, "dim");
  }
};

}  // namespace xpud::ops
