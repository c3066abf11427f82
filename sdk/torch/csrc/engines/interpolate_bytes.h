// Linear and cubic interpolation of uint8 images, with the CPU's results.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

#include "proto/ops/families/windows.h"

namespace xpud::shim {

// Interpolates the last two dimensions of `self`, uint8 on a device, into `out`. `kind` is kLinear, kCubic,
// kLinearArea or kCubicArea.
void InterpolateBytes(const at::Tensor& self, const at::Tensor& out, ops::ResampleKind kind,
                      bool align_corners, const std::array<std::optional<double>, 2>& scales);

}  // namespace xpud::shim
