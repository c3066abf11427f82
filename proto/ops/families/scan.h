// Scans along one dimension: out[S] <- self[S], where element k of out is the reduction of elements 0 to k of
// self. The row's formula is a reduction formula (op_table.h) without `n`. An indexed scan gives values and
// their positions.
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

template <typename T>
struct ScanCall {
  T out{}, self{};
  int64_t dim = 0;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out");
    visitor.Input(named.self, "self");
    visitor.Dimension(named.dim, "dim");
  }
};

template <typename T>
struct IndexedScanCall {
  T values{}, indices{}, self{};
  int64_t dim = 0;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.values, "values");
    visitor.Output(named.indices, "indices");
    visitor.Input(named.self, "self");
    visitor.Dimension(named.dim, "dim");
  }
};

}  // namespace xpud::ops
