// A map or a reduction applied to each element of tensor lists. The attribute `row` is the wire number of its
// row, which gives the formula and the rules of each element.
// Foreach: out[i] <- row(a[i], b[i], ..). Inputs are tensors or immediates; a list of one serves all
// elements, and a tensor of rank 0 serves an output of any rank. ForeachReduce: out[i], of rank 0 <-
// row(self[i]) over all dimensions.
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

template <typename T>
struct ForeachCall {
  int64_t row = 0;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.OutputList("out");
    visitor.InputList("a");
    visitor.InputList("b", kOptional);
    visitor.InputList("c", kOptional);
    visitor.InputList("d", kOptional);
    visitor.InputList("e", kOptional);
    visitor.Attribute(named.row, "row");
  }
};

template <typename T>
struct ForeachReduceCall {
  int64_t row = 0;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.OutputList("out");
    visitor.InputList("self");
    visitor.Attribute(named.row, "row");
  }
};

}  // namespace xpud::ops
