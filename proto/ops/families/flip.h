// Reversal: out[S] <- self[S], whose elements are in reverse order along dimensions `dims`.
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

template <typename T>
struct FlipCall {
  T out{}, self{};
  Integers dims{};

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out");
    visitor.Input(named.self, "self");
    visitor.Attribute(named.dims, "dims");
  }
};

}  // namespace xpud::ops
