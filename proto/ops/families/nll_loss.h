// Negative log likelihood: out[N] or [], total_weight[] <- self[N,C], target[N], weight?[C]; and its
// gradient: grad_input[N,C] <- grad_output[N] or [], self[N,C], target[N], weight?[C]. (For a mean, backward
// recomputes the total weight from the targets.) Rows with formula "planes" take self[N,C,P], target[N,P] and
// out[N,P]: a target for each position of an image. `reduction`: 0 none, 1 mean, 2 sum.
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

struct NllLossAttributes {
  int64_t reduction = 0, ignore_index = 0;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Attribute(named.reduction, "reduction");
    visitor.Attribute(named.ignore_index, "ignore_index");
  }
};

template <typename T>
struct NllLossCall {
  T out{}, total_weight{}, self{}, target{}, weight{};
  NllLossAttributes attributes{};

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out");
    visitor.Output(named.total_weight, "total_weight");
    visitor.Input(named.self, "self");
    visitor.Input(named.target, "target", kIndices);
    visitor.Input(named.weight, "weight", kOptional);
    NllLossAttributes::Visit(named.attributes, visitor);
  }
};

template <typename T>
struct NllLossBackwardCall {
  T grad_input{}, grad_output{}, self{}, target{}, weight{};
  NllLossAttributes attributes{};

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.grad_input, "grad_input");
    visitor.Input(named.grad_output, "grad_output");
    visitor.Input(named.self, "self");
    visitor.Input(named.target, "target", kIndices);
    visitor.Input(named.weight, "weight", kOptional);
    NllLossAttributes::Visit(named.attributes, visitor);
  }
};

}  // namespace xpud::ops
