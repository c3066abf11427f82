// Linear maps along the last dimensions of self, one after the other: out[N.., S'..] <- self[N.., S..].
// Average pooling, padding with elements of self, interpolation; and the gradient of each (`transposed`).
// `scale`, `kernel`, `stride` and `padding` have an element for each of these dimensions, at most 3. `kind`
// is a ResampleKind (windows.h).
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

template <typename T>
struct ResampleCall {
  T out{}, self{};
  int64_t kind = 0;
  bool transposed = false, half_pixel = false, include_padding = false;
  Reals scale{};
  Integers kernel{}, stride{}, padding{};

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out");
    visitor.Input(named.self, "self");
    visitor.Attribute(named.kind, "kind");
    visitor.Attribute(named.transposed, "transposed");
    visitor.Attribute(named.half_pixel, "half_pixel");
    visitor.Attribute(named.include_padding, "include_padding");
    visitor.Attribute(named.scale, "scale");
    visitor.Attribute(named.kernel, "kernel");
    visitor.Attribute(named.stride, "stride");
    visitor.Attribute(named.padding, "padding");
  }
};

}  // namespace xpud::ops
