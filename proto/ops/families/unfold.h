// Windows of images as columns, and back. Unfold: out[N, C * kernel, windows] <- self[N, C, H, W]; elements
// of the padding are 0. Fold: out[N, C, H, W] <- self[N, C * kernel, windows]: the sums of the windows'
// elements at each position; bools are combined with or. N may be missing.
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

template <typename T>
struct UnfoldCall {
  T out{}, self{};
  Integers kernel_size{}, dilation{}, padding{}, stride{};

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out");
    visitor.Input(named.self, "self");
    visitor.Attribute(named.kernel_size, "kernel_size");
    visitor.Attribute(named.dilation, "dilation");
    visitor.Attribute(named.padding, "padding");
    visitor.Attribute(named.stride, "stride");
  }
};

template <typename T>
struct FoldCall {
  T out{}, self{};
  Integers output_size{}, kernel_size{}, dilation{}, padding{}, stride{};

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out");
    visitor.Input(named.self, "self");
    visitor.Attribute(named.output_size, "output_size");
    visitor.Attribute(named.kernel_size, "kernel_size");
    visitor.Attribute(named.dilation, "dilation");
    visitor.Attribute(named.padding, "padding");
    visitor.Attribute(named.stride, "stride");
  }
};

}  // namespace xpud::ops
