// Reductions of segments of rows: out[B,D] (in place) <- data[V,D], begins[B], ends[B], index[N], weights[N].
// Row b of out becomes the reduction of rows index[n] of data, each times weights[n], for n from begins[b] to
// ends[b] - 1. Without index, n itself is the row, and N is V. Rows that equal `padding_idx` are skipped; -1
// skips none. A segment without rows leaves its row of out as it is. The row's formula is a reduction formula
// (op_table.h) without `n`, in which k is the row of data.
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

template <typename T>
struct SegmentsCall {
  T out{}, data{}, begins{}, ends{}, index{}, weights{};
  int64_t padding_idx = 0;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out", kUpdated);
    visitor.Input(named.data, "data");
    visitor.Input(named.begins, "begins", kIndices);
    visitor.Input(named.ends, "ends", kIndices);
    visitor.Input(named.index, "index", kIndices | kOptional);
    visitor.Input(named.weights, "weights", kOptional);
    visitor.Attribute(named.padding_idx, "padding_idx");
  }
};

}  // namespace xpud::ops
