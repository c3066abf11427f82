// Order along one dimension.
// Sort: values[S'], indices[S'] <- self[S]: the first k elements of each line in ascending or descending
// order, and their positions. S' is S with k elements along the dimension; k < 0 stands for all of them.
// Equal elements keep their order, and NaN is the largest number. Search: out[S] <- sorted_sequence[B.., n],
// self[S], sorter: the number of elements of the ascending line that are less than (right: not greater than)
// each element of self. A sequence of rank 1 serves all elements, else S and the sequence differ only in
// their last sizes. With a sorter, element i of the line is that at its position sorter[i].
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

template <typename T>
struct SortCall {
  T values{}, indices{}, self{};
  int64_t dim = 0;
  bool descending = false;
  int64_t k = -1;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.values, "values");
    visitor.Output(named.indices, "indices");
    visitor.Input(named.self, "self");
    visitor.Dimension(named.dim, "dim");
    visitor.Attribute(named.descending, "descending", false);
    visitor.Attribute(named.k, "k", -1);
  }
};

template <typename T>
struct SearchCall {
  T out{}, sorted_sequence{}, self{}, sorter{};
  bool right = false, out_int32 = false;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out");
    visitor.Input(named.sorted_sequence, "sorted_sequence");
    visitor.Input(named.self, "self");
    visitor.Input(named.sorter, "sorter", kOptional | kIndices);
    visitor.Attribute(named.right, "right", false);
    visitor.Attribute(named.out_int32, "out_int32", false);
  }
};

}  // namespace xpud::ops
