// out[index[n], :] += source[n, :], in the order of n: out[V,D] (in place) <- index[N], source[N,D]. Rows
// whose index is `padding_idx` are skipped; -1 skips none.
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

template <typename T>
struct ScatterAddCall {
  T out{}, index{}, source{};
  int64_t padding_idx = 0;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out", kUpdated);
    visitor.Input(named.index, "index", kIndices);
    visitor.Input(named.source, "source");
    visitor.Attribute(named.padding_idx, "padding_idx");
  }
};

}  // namespace xpud::ops
