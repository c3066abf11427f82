// Connectionist temporal classification (Graves et al. 2006): loss[N], log_alpha[N,T,W] <- log_probs[T,N,C],
// targets[L], shapes[N,3]; and its gradient: grad_input[T,N,C] <- grad_output[N], log_probs, targets, shapes,
// loss, log_alpha. A row of shapes has the length of a sequence, the number of its labels, and the position
// of its first label in targets. Lengths are cut to T, to (W - 1) / 2 and to L. A label that is not a class
// or lies outside targets is impossible: its probability is 0.
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

template <typename T>
struct CtcLossCall {
  T loss{}, log_alpha{}, log_probs{}, targets{}, shapes{};
  int64_t blank = 0;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.loss, "loss");
    visitor.Output(named.log_alpha, "log_alpha");
    visitor.Input(named.log_probs, "log_probs");
    visitor.Input(named.targets, "targets");
    visitor.Input(named.shapes, "shapes");
    visitor.Attribute(named.blank, "blank");
  }
};

template <typename T>
struct CtcLossBackwardCall {
  T grad_input{}, grad_output{}, log_probs{}, targets{}, shapes{}, loss{}, log_alpha{};
  int64_t blank = 0;
  bool zero_infinity = false;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.grad_input, "grad_input");
    visitor.Input(named.grad_output, "grad_output");
    visitor.Input(named.log_probs, "log_probs");
    visitor.Input(named.targets, "targets");
    visitor.Input(named.shapes, "shapes");
    visitor.Input(named.loss, "loss");
    visitor.Input(named.log_alpha, "log_alpha");
    visitor.Attribute(named.blank, "blank");
    visitor.Attribute(named.zero_infinity, "zero_infinity");
  }
};

}  // namespace xpud::ops
