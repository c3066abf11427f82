// Random numbers. They are computed on the device from the generator's seed and offset, with the same result
// on every device.
#include <ATen/ATen.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/DistributionTemplates.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/engines/device_check.h"
#include "sdk/torch/csrc/engines/map.h"
#include "sdk/torch/csrc/fallback/fallback.h"
#include "sdk/torch/csrc/runtime/generator.h"

namespace xpud::shim {
namespace {

using at::Tensor;
using OptionalGenerator = std::optional<at::Generator>;

// The row's inputs are `parameters`, seed and offset. Each element consumes `words` 32-bit words.
Tensor& Draw(const ops::Row& row, Tensor& self, ops::DType compute, std::span<const MapInput> parameters,
             const OptionalGenerator& generator, uint64_t words) {
  if (self.numel() == 0) return self;
  at::assert_no_internal_overlap(self);
  const PhiloxState state =
      NextPhilox(generator, self.device().index(), (static_cast<uint64_t>(self.numel()) * words + 3) / 4);
  std::array<MapInput, ops::kMaxInputs> inputs;
  std::copy(parameters.begin(), parameters.end(), inputs.begin());
  inputs[parameters.size()] = MapInput(state.seed, false);
  inputs[parameters.size() + 1] = MapInput(state.offset, false);
  LaunchMap(row, compute, {&self, 1}, {inputs.data(), parameters.size() + 2});
  return self;
}

bool IsFloat(const Tensor& tensor) {
  return IsOnDevice(tensor) && IsSupported(tensor.scalar_type(), ops::kFloatTypes);
}

double LargestFloat(at::ScalarType type) {
  return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "uniform_", [] {
    return static_cast<double>(std::numeric_limits<scalar_t>::max());
  });
}

Tensor& Uniform(Tensor& self, double from, double to, OptionalGenerator generator) {
  static const ops::Row& row = ops::RowOf("xpud::uniform");
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from,
              " > to=", to);
  if (!IsFloat(self)) return FallbackOf<at::_ops::uniform_>::Call(self, from, to, generator);
  const double most = LargestFloat(self.scalar_type());
  TORCH_CHECK(std::abs(from) <= most, "from is out of bounds for ", self.dtype());
  TORCH_CHECK(std::abs(to) <= most, "to is out of bounds for ", self.dtype());
  TORCH_CHECK(to - from <= most, "uniform_ expects to-from <= std::numeric_limits<",
              c10::toString(self.scalar_type()), ">::max(), but found to=", to, " and from=", from,
              " which result in to-from to exceed the limit");
  const MapInput parameters[] = {{from, false}, {to, false}};
  const ops::DType compute = *ToDType(self.scalar_type());
  return Draw(row, self, compute, parameters, generator, WordsOf(compute));
}

Tensor& Normal(Tensor& self, double mean, double deviation, OptionalGenerator generator) {
  static const ops::Row& row = ops::RowOf("xpud::normal");
  TORCH_CHECK(deviation >= 0, "normal expects std >= 0.0, but found std ", deviation);
  if (!IsFloat(self)) return FallbackOf<at::_ops::normal_>::Call(self, mean, deviation, generator);
  const MapInput parameters[] = {{mean, false}, {deviation, false}};
  return Draw(row, self, *ToDType(self.scalar_type()), parameters, generator, 1);
}

Tensor& Exponential(Tensor& self, double lambda, OptionalGenerator generator) {
  static const ops::Row& row = ops::RowOf("xpud::exponential");
  TORCH_CHECK(lambda > 0, "exponential_ expects lambda > 0.0, but found lambda=", lambda);
  if (!IsFloat(self)) return FallbackOf<at::_ops::exponential_>::Call(self, lambda, generator);
  const MapInput parameters[] = {{lambda, false}};
  const ops::DType compute = *ToDType(self.scalar_type());
  return Draw(row, self, compute, parameters, generator, WordsOf(compute));
}

Tensor& Cauchy(Tensor& self, double median, double sigma, OptionalGenerator generator) {
  static const ops::Row& row = ops::RowOf("xpud::cauchy");
  TORCH_CHECK(sigma > 0.0, "cauchy_ expects sigma > 0.0, but found sigma=", sigma);
  if (!IsFloat(self)) return FallbackOf<at::_ops::cauchy_>::Call(self, median, sigma, generator);
  const MapInput parameters[] = {{median, false}, {sigma, false}};
  const ops::DType compute = *ToDType(self.scalar_type());
  return Draw(row, self, compute, parameters, generator, WordsOf(compute));
}

Tensor& LogNormal(Tensor& self, double mean, double deviation, OptionalGenerator generator) {
  static const ops::Row& row = ops::RowOf("xpud::log_normal");
  TORCH_CHECK(deviation > 0.0, "log_normal_ expects std > 0.0, but found std=", deviation);
  if (!IsFloat(self)) return FallbackOf<at::_ops::log_normal_>::Call(self, mean, deviation, generator);
  const MapInput parameters[] = {{mean, false}, {deviation, false}};
  return Draw(row, self, *ToDType(self.scalar_type()), parameters, generator, 1);
}

Tensor& Geometric(Tensor& self, double p, OptionalGenerator generator) {
  static const ops::Row& row = ops::RowOf("xpud::geometric");
  TORCH_CHECK(0 < p && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
  if (!IsOnDevice(self) || !IsSupported(self.scalar_type(), row.dtypes))
    return FallbackOf<at::_ops::geometric_>::Call(self, p, generator);
  const MapInput parameters[] = {{p, false}};
  return Draw(row, self, ops::DType::kFloat64, parameters, generator, WordsOf(ops::DType::kFloat64));
}

// Probabilities are compared in f32 or f64. f32 has only 24 bits, so probabilities near 0 or 1 need f64.
constexpr double kSmallProbability = 1.0 / 1024;

Tensor& BernoulliFloat(Tensor& self, double p, OptionalGenerator generator) {
  static const ops::Row& row = ops::RowOf("xpud::bernoulli");
  TORCH_CHECK(p >= 0 && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  if (!IsOnDevice(self) || !IsSupported(self.scalar_type()))
    return FallbackOf<at::_ops::bernoulli__float>::Call(self, p, generator);
  const bool small = p > 0 && p < 1 && std::min(p, 1 - p) < kSmallProbability;
  const ops::DType compute = small ? ops::DType::kFloat64 : ops::DType::kFloat32;
  const MapInput parameters[] = {{p, false}};
  return Draw(row, self, compute, parameters, generator, WordsOf(compute));
}

Tensor& BernoulliTensor(Tensor& self, const Tensor& p, OptionalGenerator generator) {
  static const ops::Row& row = ops::RowOf("xpud::bernoulli");
  const bool served = IsOnDevice(self) && IsSupported(self.scalar_type()) && IsFloat(p) &&
                      p.device() == self.device() && !p.is_alias_of(self);
  if (!served) return FallbackOf<at::_ops::bernoulli__Tensor>::Call(self, p, generator);
  CheckRangeOnDevice(p, 0, 1, "Expected p_in >= 0 && p_in <= 1 to be true, but got false.");
  const Tensor expanded = p.expand(self.sizes());
  const MapInput parameters[] = {expanded};
  const ops::DType compute = p.scalar_type() == at::kDouble ? ops::DType::kFloat64 : ops::DType::kFloat32;
  return Draw(row, self, compute, parameters, generator, WordsOf(compute));
}

// The functional form uses the input as probabilities.
Tensor Bernoulli(const Tensor& self, OptionalGenerator generator) {
  Tensor out = at::empty_like(self, at::MemoryFormat::Contiguous);
  return BernoulliTensor(out, self, generator);
}

Tensor& RandomBetween(Tensor& self, int64_t from, uint64_t range, const OptionalGenerator& generator) {
  static const ops::Row& row = ops::RowOf("xpud::random");
  const MapInput parameters[] = {{from, false}, {static_cast<int64_t>(range), false}};
  return Draw(row, self, ops::DType::kInt64, parameters, generator, 2);
}

// Returns the largest integer up to which the dtype represents every integer.
int64_t LargestOf(at::ScalarType type) {
  switch (type) {
    case at::kBool:
      return 1;
    case at::kHalf:
      return 1 << 11;
    case at::kBFloat16:
      return 1 << 8;
    case at::kFloat:
      return 1 << 24;
    case at::kDouble:
      return int64_t{1} << 53;
    case at::kByte:
      return 255;
    case at::kChar:
      return 127;
    case at::kShort:
      return 32767;
    case at::kInt:
      return std::numeric_limits<int32_t>::max();
    default:
      return std::numeric_limits<int64_t>::max();
  }
}

bool IsServed(const Tensor& self) { return IsOnDevice(self) && IsSupported(self.scalar_type()); }

Tensor& RandomFrom(Tensor& self, int64_t from, std::optional<int64_t> to, OptionalGenerator generator) {
  const int64_t end = to.value_or(LargestOf(self.scalar_type()));
  TORCH_CHECK(from < end, "random_ expects 'from' to be less than 'to', but got from=", from, " >= to=", end);
  if (IsSupported(self.scalar_type())) {
    at::native::templates::check_from_to_in_range(from, end - 1, self.dtype());
  }
  // 0: all of the 2^64 integers.
  const uint64_t range = static_cast<uint64_t>(end) - static_cast<uint64_t>(from) + (to.has_value() ? 0 : 1);
  if (!IsServed(self) || range == 0 || range > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return FallbackOf<at::_ops::random__from>::Call(self, from, to, generator);
  }
  return RandomBetween(self, from, range, generator);
}

Tensor& RandomTo(Tensor& self, int64_t to, OptionalGenerator generator) {
  return RandomFrom(self, 0, to, generator);
}

Tensor& Random(Tensor& self, OptionalGenerator generator) {
  if (!IsServed(self) || self.scalar_type() == at::kLong)
    return FallbackOf<at::_ops::random_>::Call(self, generator);
  return RandomBetween(self, 0, static_cast<uint64_t>(LargestOf(self.scalar_type())) + 1, generator);
}

// ---- normal numbers with a mean and a deviation for each element

// Waits for the deviations, as on other devices.
void CheckDeviations(const Tensor& deviation) {
  TORCH_CHECK(deviation.numel() == 0 || deviation.min().ge(0).item<bool>(),
              "normal expects all elements of std >= 0.0");
}

Tensor NormalTensorTensor(const Tensor& mean, const Tensor& deviation, OptionalGenerator generator) {
  if (!IsFloat(mean) || !IsFloat(deviation))
    return FallbackOf<at::_ops::normal_Tensor_Tensor>::Call(mean, deviation, generator);
  CheckDeviations(deviation);
  const std::vector<int64_t> sizes = at::infer_size(mean.sizes(), deviation.sizes());
  return at::empty(sizes, mean.options()).normal_(0, 1, generator).mul_(deviation).add_(mean);
}
Tensor NormalTensorFloat(const Tensor& mean, double deviation, OptionalGenerator generator) {
  TORCH_CHECK(deviation >= 0, "normal expects std >= 0.0, but found std ", deviation);
  if (!IsFloat(mean)) return FallbackOf<at::_ops::normal_Tensor_float>::Call(mean, deviation, generator);
  return at::empty(mean.sizes(), mean.options()).normal_(0, deviation, generator).add_(mean);
}
Tensor NormalFloatTensor(double mean, const Tensor& deviation, OptionalGenerator generator) {
  if (!IsFloat(deviation)) return FallbackOf<at::_ops::normal_float_Tensor>::Call(mean, deviation, generator);
  CheckDeviations(deviation);
  return at::empty(deviation.sizes(), deviation.options())
      .normal_(0, 1, generator)
      .mul_(deviation)
      .add_(mean);
}

// ---- distributions drawn by rejection: each element has its own parameters and its own counter

constexpr uint64_t kOwnCounter = 4;  // words

// Throws unless all elements are true. Waits for them.
void CheckAll(const Tensor& valid, const char* message) { TORCH_CHECK(valid.all().item<bool>(), message); }

Tensor Poisson(const Tensor& self, OptionalGenerator generator) {
  static const ops::Row& row = ops::RowOf("xpud::poisson");
  if (!IsFloat(self)) return FallbackOf<at::_ops::poisson>::Call(self, generator);
  CheckAll(self.ge(0), "invalid Poisson rate, expected rate to be non-negative");
  Tensor out = at::empty(self.sizes(), self.options());
  const MapInput parameters[] = {self};
  return Draw(row, out, *ToDType(self.scalar_type()), parameters, generator, kOwnCounter);
}

Tensor Binomial(const Tensor& count, const Tensor& prob, OptionalGenerator generator) {
  static const ops::Row& row = ops::RowOf("xpud::binomial");
  const bool served = IsFloat(count) && IsFloat(prob) && count.scalar_type() == prob.scalar_type() &&
                      !c10::isReducedFloatingType(count.scalar_type());
  if (!served) return FallbackOf<at::_ops::binomial>::Call(count, prob, generator);
  const std::vector<int64_t> sizes = at::infer_size(count.sizes(), prob.sizes());
  Tensor out = at::empty(sizes, count.options());
  CheckAll(count.ge(0), "binomial: counts must not be negative");
  CheckAll(prob.ge(0).logical_and_(prob.le(1)), "binomial: probabilities must be between 0 and 1");
  const Tensor counts = count.expand(sizes), probabilities = prob.expand(sizes);
  const MapInput parameters[] = {counts, probabilities};
  return Draw(row, out, *ToDType(count.scalar_type()), parameters, generator, kOwnCounter);
}

// The smallest normal number of a floating type.
double SmallestOf(at::ScalarType type) {
  return AT_DISPATCH_V2(type, "SmallestOf",
                        AT_WRAP([] { return static_cast<double>(std::numeric_limits<scalar_t>::min()); }),
                        AT_EXPAND(AT_FLOATING_TYPES), at::kHalf, at::kBFloat16);
}

Tensor StandardGamma(const Tensor& self, OptionalGenerator generator) {
  static const ops::Row& row = ops::RowOf("xpud::gamma");
  if (!IsFloat(self)) return FallbackOf<at::_ops::_standard_gamma>::Call(self, generator);
  Tensor out = at::empty(self.sizes(), self.options());
  const MapInput parameters[] = {self};
  Draw(row, out, *ToDType(self.scalar_type()), parameters, generator, kOwnCounter);
  return out.clamp_min_(SmallestOf(self.scalar_type()));
}

Tensor Dirichlet(const Tensor& self, OptionalGenerator generator) {
  if (!IsFloat(self)) return FallbackOf<at::_ops::_sample_dirichlet>::Call(self, generator);
  const Tensor parts = at::_standard_gamma(self, generator);
  return parts.div(parts.sum(-1, /*keepdim=*/true)).clamp_min_(SmallestOf(self.scalar_type()));
}

// ---- leaky_relu with random slopes

bool IsRreluServed(const Tensor& self, const Tensor& noise) {
  return IsFloat(self) && IsOnDevice(noise) && noise.scalar_type() == self.scalar_type() &&
         noise.sizes() == self.sizes();
}

// Writes the slopes to `noise`, if training.
Tensor RreluWithNoise(const Tensor& self, Tensor& noise, const at::Scalar& lower, const at::Scalar& upper,
                      bool training, OptionalGenerator generator) {
  static const ops::Row& row = ops::RowOf("rrelu_with_noise");
  const double low = lower.toDouble(), high = upper.toDouble();
  if (!training && IsFloat(self)) return at::leaky_relu(self, (low + high) / 2);
  const bool right = std::isfinite(low) && std::isfinite(high) && low <= high;  // or the CPU's error
  if (!right || !IsRreluServed(self, noise)) {
    return FallbackOf<at::_ops::rrelu_with_noise>::Call(self, noise, lower, upper, training, generator);
  }
  Tensor out = at::empty_like(self);
  if (out.numel() == 0) return out;
  const ops::DType compute = *ToDType(self.scalar_type());
  const PhiloxState state =
      NextPhilox(generator, self.device().index(),
                 (static_cast<uint64_t>(self.numel()) * static_cast<uint64_t>(WordsOf(compute)) + 3) / 4);
  const MapInput inputs[] = {self, {low, false}, {high, false}, {state.seed, false}, {state.offset, false}};
  const Tensor outs[] = {out, noise};
  LaunchMap(row, compute, outs, inputs);
  return out;
}

Tensor RreluWithNoiseBackward(const Tensor& gradient, const Tensor& self, const Tensor& noise,
                              const at::Scalar& lower, const at::Scalar& upper, bool training,
                              bool self_is_result) {
  const double low = lower.toDouble(), high = upper.toDouble();
  if (training && high - low > 1e-6) return noise.mul(gradient);
  return at::leaky_relu_backward(gradient, self, (low + high) / 2, self_is_result);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("rrelu_with_noise", XPUD_FN(RreluWithNoise));
  m.impl("rrelu_with_noise_backward", XPUD_FN(RreluWithNoiseBackward));
  m.impl("poisson", XPUD_FN(Poisson));
  m.impl("binomial", XPUD_FN(Binomial));
  m.impl("_standard_gamma", XPUD_FN(StandardGamma));
  m.impl("_sample_dirichlet", XPUD_FN(Dirichlet));
  m.impl("normal.Tensor_Tensor", XPUD_FN(NormalTensorTensor));
  m.impl("normal.Tensor_float", XPUD_FN(NormalTensorFloat));
  m.impl("normal.float_Tensor", XPUD_FN(NormalFloatTensor));
  m.impl("uniform_", XPUD_FN(Uniform));
  m.impl("normal_", XPUD_FN(Normal));
  m.impl("exponential_", XPUD_FN(Exponential));
  m.impl("cauchy_", XPUD_FN(Cauchy));
  m.impl("log_normal_", XPUD_FN(LogNormal));
  m.impl("geometric_", XPUD_FN(Geometric));
  m.impl("bernoulli_.float", XPUD_FN(BernoulliFloat));
  m.impl("bernoulli_.Tensor", XPUD_FN(BernoulliTensor));
  m.impl("bernoulli", XPUD_FN(Bernoulli));
  m.impl("random_.from", XPUD_FN(RandomFrom));
  m.impl("random_.to", XPUD_FN(RandomTo));
  m.impl("random_", XPUD_FN(Random));
}

}  // namespace
}  // namespace xpud::shim
