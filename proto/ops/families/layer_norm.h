// Layer norm over the last dimension: out[M,N], mean[M], rstd[M] <- input[M,N], weight?[N], bias?[N]; and its
// gradients: grad_input[M,N], grad_weight[N], grad_bias[N] <- grad_out[M,N], input[M,N], mean[M], rstd[M],
// weight?[N]. RMS norm is the same with a mean of 0 and without a bias: rstd is the reciprocal of the root of
// the mean square.
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

template <typename T>
struct LayerNormCall {
  T out{}, mean{}, rstd{}, input{}, weight{}, bias{};
  double eps = 0;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out");
    visitor.Output(named.mean, "mean");
    visitor.Output(named.rstd, "rstd");
    visitor.Input(named.input, "input");
    visitor.Input(named.weight, "weight", kOptional);
    visitor.Input(named.bias, "bias", kOptional);
    visitor.Attribute(named.eps, "eps");
  }
};

template <typename T>
struct LayerNormBackwardCall {
  T grad_input{}, grad_weight{}, grad_bias{}, grad_out{}, input{}, mean{}, rstd{}, weight{};

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.grad_input, "grad_input");
    visitor.Output(named.grad_weight, "grad_weight");
    visitor.Output(named.grad_bias, "grad_bias");
    visitor.Input(named.grad_out, "grad_out");
    visitor.Input(named.input, "input");
    visitor.Input(named.mean, "mean");
    visitor.Input(named.rstd, "rstd");
    visitor.Input(named.weight, "weight", kOptional);
  }
};

template <typename T>
struct RmsNormCall {
  T out{}, rstd{}, input{}, weight{};
  double eps = 0;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out");
    visitor.Output(named.rstd, "rstd");
    visitor.Input(named.input, "input");
    visitor.Input(named.weight, "weight", kOptional);
    visitor.Attribute(named.eps, "eps");
  }
};

template <typename T>
struct RmsNormBackwardCall {
  T grad_input{}, grad_weight{}, grad_out{}, input{}, rstd{}, weight{};

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.grad_input, "grad_input");
    visitor.Output(named.grad_weight, "grad_weight");
    visitor.Input(named.grad_out, "grad_out");
    visitor.Input(named.input, "input");
    visitor.Input(named.rstd, "rstd");
    visitor.Input(named.weight, "weight", kOptional);
  }
};

}  // namespace xpud::ops
