// Maxima of windows over the last dimensions, their positions, and what is done with these positions. A
// position is the element's row-major number in its plane, which the last 1 to 3 dimensions are.
// MaxPool: values[N.., O..], indices[N.., O..] <- self[N.., I..]. The first maximum wins; the last NaN does.
// MaxPoolBackward: grad_input[N.., I..] <- grad_output[N.., O..], indices[N.., O..]: the sums of the
// gradients of the windows whose position an element is. MaxUnpool: element indices[i] of each of out's
// planes becomes self[i]; the last one wins. The other elements keep what they held.
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

// A list has an element for each dimension of a plane. If adaptive, windows divide the plane evenly.
struct MaxPoolAttributes {
  bool adaptive = false;
  Integers kernel{}, stride{}, padding{}, dilation{};

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Attribute(named.adaptive, "adaptive");
    visitor.Attribute(named.kernel, "kernel");
    visitor.Attribute(named.stride, "stride");
    visitor.Attribute(named.padding, "padding");
    visitor.Attribute(named.dilation, "dilation");
  }
};

template <typename T>
struct MaxPoolCall {
  T values{}, indices{}, self{};
  MaxPoolAttributes attributes{};

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.values, "values");
    visitor.Output(named.indices, "indices");
    visitor.Input(named.self, "self");
    MaxPoolAttributes::Visit(named.attributes, visitor);
  }
};

template <typename T>
struct MaxPoolBackwardCall {
  T grad_input{}, grad_output{}, indices{};
  MaxPoolAttributes attributes{};

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.grad_input, "grad_input");
    visitor.Input(named.grad_output, "grad_output");
    visitor.Input(named.indices, "indices");
    MaxPoolAttributes::Visit(named.attributes, visitor);
  }
};

template <typename T>
struct MaxUnpoolCall {
  T out{}, self{}, indices{};
  int64_t spatial = 0;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out", kUpdated);
    visitor.Input(named.self, "self");
    visitor.Input(named.indices, "indices", kIndices);
    visitor.Attribute(named.spatial, "spatial");
  }
};

}  // namespace xpud::ops
