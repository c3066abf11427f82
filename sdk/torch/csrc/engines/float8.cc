#include "sdk/torch/csrc/engines/float8.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace xpud::shim {
namespace {

using at::Tensor;

constexpr int kCodes = 256;
constexpr int kSignCode = 128;  // the bit of the sign; the codes below it ascend from 0 to infinity or NaN

// Returns the value of each code, on the CPU.
Tensor Values(at::ScalarType type) {
  return at::arange(kCodes, at::TensorOptions().dtype(at::kByte)).view(type).to(at::kFloat);
}

// Returns the code of infinity: the largest number's in versions of PyTorch that saturate.
int InfinityOf(at::ScalarType type) {
  return at::full({1}, std::numeric_limits<float>::infinity()).to(type).view(at::kByte).item<uint8_t>();
}

// Returns 127 bounds: the code of a magnitude is the number of bounds below it. A bound lies between two
// codes. A magnitude on it takes the even code, so a bound after an odd code is the next smaller number.
Tensor Bounds(at::ScalarType type) {
  const Tensor values = Values(type);
  const float* value = values.const_data_ptr<float>();
  const int infinity = InfinityOf(type);
  Tensor bounds = at::empty({kSignCode - 1}, at::kFloat);
  float* bound = bounds.mutable_data_ptr<float>();
  for (int code = 0; code < kSignCode - 1; ++code) {
    if (code >= infinity) {
      bound[code] = std::numeric_limits<float>::infinity();  // only NaN is beyond
      continue;
    }
    // The spacing of the largest numbers continues beyond them.
    const float next = std::isfinite(value[code + 1]) ? value[code + 1] : 2 * value[code] - value[code - 1];
    const float middle = value[code] + (next - value[code]) / 2;
    bound[code] = code % 2 == 0 ? middle : std::nextafter(middle, 0.0F);
  }
  return bounds;
}

}  // namespace

Tensor FromFloat8(const Tensor& codes) {
  const Tensor table = Values(codes.scalar_type()).to(codes.device());
  const Tensor positions = codes.contiguous().view(at::kByte).view({-1}).to(at::kInt);
  return table.index_select(0, positions).view(codes.sizes());
}

Tensor ToFloat8(const Tensor& values, at::ScalarType type) {
  const Tensor numbers = values.to(at::kFloat).contiguous();
  const Tensor magnitudes =
      at::bucketize(numbers.abs(), Bounds(type).to(values.device()), /*out_int32=*/true, /*right=*/false);
  return magnitudes.add_(at::signbit(numbers), kSignCode).to(at::kByte).view(type);
}

}  // namespace xpud::shim
