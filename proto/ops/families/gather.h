// Gather along `dim`: out[self's sizes, dim replaced by the index's length] <- self, index of rank 1
// (index_select), or out[index's sizes] <- self, index of self's rank (gather). Embedding: out[N,D] <-
// weight[V,D], index[N].
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

template <typename T>
struct GatherCall {
  T out{}, self{}, index{};
  int64_t dim = 0;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out");
    visitor.Input(named.self, "self");
    visitor.Input(named.index, "index", kIndices);
    visitor.Dimension(named.dim, "dim");
  }
};

template <typename T>
struct EmbeddingCall {
  T out{}, weight{}, index{};

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out");
    visitor.Input(named.weight, "weight");
    visitor.Input(named.index, "index", kIndices);
  }
};

}  // namespace xpud::ops
