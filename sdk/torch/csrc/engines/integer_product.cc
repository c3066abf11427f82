// Operands are widened to a type in which the products are exact, and the floating products multiply them.
#include "sdk/torch/csrc/engines/integer_product.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "sdk/torch/csrc/call/operand.h"

namespace xpud::shim {
namespace {

using at::Tensor;

// The lower and the upper half of int32: x = upper 2^16 + lower, 0 <= lower < 2^16.
struct Halves {
  explicit Halves(const Tensor& x)
      : lower(x.bitwise_and(0xFFFF).to(at::kDouble)), upper(at::bitwise_right_shift(x, 16).to(at::kDouble)) {}
  Tensor lower, upper;
};

// Sums of up to 2^20 products of halves are exact in f64. Those of two upper halves are multiples of 2^32.
Tensor WordProduct(const Tensor& a, const Tensor& b) {
  const Halves left(a), right(b);
  const Tensor mixed = at::mm(left.lower, right.upper).add_(at::mm(left.upper, right.lower)).to(at::kLong);
  const Tensor low = at::mm(left.lower, right.lower).to(at::kLong);
  return low.add_(mixed, 65536).to(at::kInt);
}

}  // namespace

Tensor ByteProduct(const Tensor& a, const Tensor& b) {
  // f32 holds the sum of so many products of 8-bit numbers exactly, the second signed: 512 * 255 * 128 <
  // 2^24. Also TF32 holds the factors exactly.
  static constexpr int64_t kExactInner = 512;
  const Tensor left = a.to(at::kFloat), right = b.to(at::kFloat);
  Tensor sum;
  for (int64_t k = 0; k < a.size(1); k += kExactInner) {
    const int64_t length = std::min(kExactInner, a.size(1) - k);
    const Tensor part = at::mm(left.narrow(1, k, length), right.narrow(0, k, length)).to(at::kInt);
    sum = sum.defined() ? sum.add_(part) : part;
  }
  return sum;
}

bool HasIntegerProduct(const Tensor& a, const Tensor& b) {
  static constexpr int64_t kMaxInner = int64_t{1} << 20;
  const at::ScalarType type = a.scalar_type();
  return IsOnDevice(a) && IsOnDevice(b) && type == b.scalar_type() && a.numel() > 0 && b.numel() > 0 &&
         a.size(1) <= kMaxInner &&
         (type == at::kByte || type == at::kChar || type == at::kShort || type == at::kInt);
}

Tensor IntegerProduct(const Tensor& a, const Tensor& b) {
  CheckSameDevice(a.device(), b.device());
  switch (a.scalar_type()) {
    case at::kInt:
      return WordProduct(a, b);
    case at::kChar:
      return ByteProduct(a, b).to(at::kChar);
    default:  // uint8 and int16: f64 holds the sums
      return at::mm(a.to(at::kDouble), b.to(at::kDouble)).to(at::kLong).to(a.scalar_type());
  }
}

}  // namespace xpud::shim
