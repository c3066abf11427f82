// Matrix product: out[B?,M,N] = activation(alpha * a @ b + beta * c) <- a[B?,M,K], b[B?,K,N], c? (broadcast
// to out). Products of equal operands may differ in the last bits once the device keeps b in a layout of its
// own, unless the call asks for a deterministic one.
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

// A flag beside the Activation: the product must not depend on what the device keeps.
inline constexpr int64_t kDeterministicProduct = 256;

template <typename T>
struct MatmulCall {
  T out{}, a{}, b{}, c{};
  double beta = 1, alpha = 1;
  int64_t activation = 0;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out");
    visitor.Input(named.a, "a");
    visitor.Input(named.b, "b");
    visitor.Input(named.c, "c", kOptional);
    visitor.Attribute(named.beta, "beta");
    visitor.Attribute(named.alpha, "alpha");
    visitor.Attribute(named.activation, "activation");
  }
};

}  // namespace xpud::ops
