// Samples of planes at positions that a grid gives: out[N, C, O..] <- input[N, C, I..], grid[N, O.., D],
// where D (2 or 3) is the number of spatial dimensions. A position is (x, y) or (x, y, z); -1 to 1 spans the
// plane. Backward: grad_input[N, C, I..], grad_grid[N, O.., D] <- grad_output[N, C, O..], input, grid. It
// adds to grad_input. `interpolation_mode`: 0 linear, 1 nearest, 2 cubic; `padding_mode`: 0 zeros, 1 border,
// 2 reflection.
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

struct GridSampleAttributes {
  int64_t interpolation_mode = 0, padding_mode = 0;
  bool align_corners = false;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Attribute(named.interpolation_mode, "interpolation_mode");
    visitor.Attribute(named.padding_mode, "padding_mode");
    visitor.Attribute(named.align_corners, "align_corners");
  }
};

template <typename T>
struct GridSampleCall {
  T out{}, input{}, grid{};
  GridSampleAttributes attributes{};

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out");
    visitor.Input(named.input, "input");
    visitor.Input(named.grid, "grid");
    GridSampleAttributes::Visit(named.attributes, visitor);
  }
};

template <typename T>
struct GridSampleBackwardCall {
  T grad_input{}, grad_grid{}, grad_output{}, input{}, grid{};
  GridSampleAttributes attributes{};

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.grad_input, "grad_input", kUpdated);
    visitor.Output(named.grad_grid, "grad_grid");
    visitor.Input(named.grad_output, "grad_output");
    visitor.Input(named.input, "input");
    visitor.Input(named.grid, "grid");
    GridSampleAttributes::Visit(named.attributes, visitor);
  }
};

}  // namespace xpud::ops
