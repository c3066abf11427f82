// Drawing from a set: multinomial and randperm, composed of operators on the device. A seed determines them.
#include <ATen/ATen.h>
#include <ATen/native/TensorFactories.h>
#include <torch/library.h>

#include <limits>

#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/engines/device_check.h"
#include "sdk/torch/csrc/fallback/fallback.h"

namespace xpud::shim {
namespace {

using at::Tensor;
using OptionalGenerator = std::optional<at::Generator>;

// ---- multinomial

constexpr int64_t kMaxCategories = int64_t{1} << 24;  // f32 numbers them all

void CheckMultinomial(const Tensor& self, int64_t count, bool replacement) {
  TORCH_CHECK(at::isFloatingType(self.scalar_type()),
              "multinomial only supports floating-point dtypes for input, got: ", self.scalar_type());
  TORCH_CHECK(self.dim() == 1 || self.dim() == 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(count > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK(replacement || count <= self.size(-1),
              "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  TORCH_CHECK(self.size(-1) <= kMaxCategories, "number of categories cannot exceed 2^24");
}

// Does not wait: a bad distribution is an error at the next synchronisation.
void CheckDistribution(const Tensor& self) {
  const double most = self.scalar_type() == at::kDouble ? std::numeric_limits<double>::max()
                                                        : std::numeric_limits<float>::max();
  CheckRangeOnDevice(self, 0, most, "probability tensor contains either `inf`, `nan` or element < 0");
  CheckOnDevice(self.sum(-1).eq(0), "invalid multinomial distribution (sum of probabilities <= 0)");
}

// The categories whose probability, divided by an exponential number, is largest: see Efraimidis and
// Spirakis, Weighted random sampling (2006).
Tensor DrawDistinct(const Tensor& self, int64_t count, const OptionalGenerator& generator) {
  Tensor keys = at::empty_like(self).exponential_(1, generator);
  at::div_out(keys, self, keys);
  return count == 1 ? keys.argmax(-1, /*keepdim=*/true) : std::get<1>(keys.topk(count));
}

// Finds uniform numbers in the running sums of the probabilities.
Tensor DrawWithReplacement(const Tensor& self, int64_t count, const OptionalGenerator& generator) {
  const Tensor sums = self.to(at::kDouble).cumsum(-1);
  const Tensor rising = std::get<0>(sums.cummax(-1));  // despite rounding
  const Tensor total = rising.narrow(-1, self.size(-1) - 1, 1);
  auto shape = self.sizes().vec();
  shape.back() = count;
  const Tensor uniform = at::empty(shape, total.options()).uniform_(0, 1, generator);
  return at::searchsorted(rising, uniform.mul_(-1).add_(1).mul_(total));  // of (0, total]
}

Tensor Multinomial(const Tensor& self, int64_t count, bool replacement, OptionalGenerator generator) {
  if (!IsServed(self, ops::kFloatTypes))
    return FallbackOf<at::_ops::multinomial>::Call(self, count, replacement, generator);
  CheckMultinomial(self, count, replacement);
  if (self.numel() == 0) {
    auto shape = self.sizes().vec();
    shape.back() = count;
    return at::empty(shape, self.options().dtype(at::kLong));
  }
  CheckDistribution(self);
  return replacement && count > 1 ? DrawWithReplacement(self, count, generator)
                                  : DrawDistinct(self, count, generator);
}

// ---- randperm

// The order of random numbers of 63 bits. Two are equal with probability n^2 / 2^64, and then keep their
// order.
Tensor& RandPerm(int64_t n, OptionalGenerator generator, Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  if (!IsOnDevice(out) || !IsSupported(out.scalar_type()))
    return FallbackOf<at::_ops::randperm_generator_out>::Call(n, generator, out);
  TORCH_CHECK(!generator.has_value() || generator->device() == out.device(), "Expected a '", out.device(),
              "' generator device but found '", generator->device(), "'");
  at::native::check_supported_max_int_with_precision(n, out);
  out.resize_({n});
  if (n == 0) return out;
  const Tensor keys = at::empty({n}, out.options().dtype(at::kLong))
                          .random_(0, std::numeric_limits<int64_t>::max(), generator);
  return out.copy_(keys.argsort());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("multinomial", XPUD_FN(Multinomial));
  m.impl("randperm.generator_out", XPUD_FN(RandPerm));
}

}  // namespace
}  // namespace xpud::shim
