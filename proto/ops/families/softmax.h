// Softmax along one dimension: out[S] <- self[S], and its gradient: grad_input[S] <- grad_output[S],
// output[S]. Rows with formula "log" are log-softmax.
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

template <typename T>
struct SoftmaxCall {
  T out{}, self{};
  int64_t dim = 0;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out");
    visitor.Input(named.self, "self");
    visitor.Dimension(named.dim, "dim");
  }
};

template <typename T>
struct SoftmaxBackwardCall {
  T grad_input{}, grad_output{}, output{};
  int64_t dim = 0;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.grad_input, "grad_input");
    visitor.Input(named.grad_output, "grad_output");
    visitor.Input(named.output, "output");
    visitor.Dimension(named.dim, "dim");
  }
};

}  // namespace xpud::ops
