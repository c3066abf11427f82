// Conversions of float8, which the wire lacks: its bytes are codes, found in tables. Values, rounding (to
// even) and overflow are those of the CPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace xpud::shim {

// The types that convert on the device. The others have no negative zero, or no sign, and convert on the CPU.
constexpr bool IsFloat8(at::ScalarType type) {
  return type == at::kFloat8_e4m3fn || type == at::kFloat8_e5m2;
}

// Returns the values as f32, row-major. REQUIRES: IsFloat8 of the dtype; on the device.
at::Tensor FromFloat8(const at::Tensor& codes);

// Returns the values rounded to `type`, row-major. REQUIRES: IsFloat8(type); a dtype of the wire, on the
// device.
at::Tensor ToFloat8(const at::Tensor& values, at::ScalarType type);

}  // namespace xpud::shim
