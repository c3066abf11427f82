// Bytes are interpolated in integers: along the width, rounded to bytes, then along the height. The weights
// of a dimension are 16-bit integers with as many binary digits behind the point as the largest weight
// leaves. This is Pillow's method, which ATen's CPU kernels use; the weights are computed in their order of
// operations, so that results are equal.
#include "sdk/torch/csrc/engines/interpolate_bytes.h"

#include <ATen/ATen.h>
#include <ATen/native/UpSample.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace xpud::shim {
namespace {

using at::Tensor;
using ops::ResampleKind;

constexpr int kMaxDigits = 22, kWeightBits = 15;

bool IsCubic(ResampleKind kind) { return kind == ResampleKind::kCubic || kind == ResampleKind::kCubicArea; }
bool IsArea(ResampleKind kind) {
  return kind == ResampleKind::kLinearArea || kind == ResampleKind::kCubicArea;
}

// The weight of an input at distance `x`: a triangle, or Keys' kernel.
double WeightAt(ResampleKind kind, double x) {
  const double a = kind == ResampleKind::kCubicArea ? -0.5 : -0.75;
  x = std::abs(x);
  if (!IsCubic(kind)) return x < 1.0 ? 1.0 - x : 0.0;
  if (x < 1.0) return at::native::cubic_convolution1(x, a);
  return x < 2.0 ? at::native::cubic_convolution2(x, a) : 0.0;
}

// The inputs of each output along a dimension: weights[o][k] is that of input positions[o][k].
class Taps {
 public:
  Taps(ResampleKind kind, int64_t in, int64_t out, bool align_corners, std::optional<double> scale)
      : kind_(kind),
        in_(in),
        step_(at::native::area_pixel_compute_scale<double>(in, out, align_corners, scale)) {
    const int64_t taps = IsCubic(kind) ? 4 : 2;
    reach_ = 0.5 * static_cast<double>(taps) * (IsArea(kind) && step_ >= 1 ? step_ : 1);
    count_ = IsArea(kind) ? static_cast<int64_t>(std::ceil(reach_)) * 2 + 1 : taps;
    positions_.resize(static_cast<size_t>(out * count_));
    weights_.resize(positions_.size());
    for (int64_t o = 0; o < out; ++o) {
      if (IsArea(kind))
        AddArea(o);
      else
        AddNeighbours(o, align_corners);
    }
    Quantise();
  }

  int64_t count() const { return count_; }
  int digits() const { return digits_; }
  // [count, outputs] on the device.
  Tensor Positions(c10::Device device) const { return Upload<int64_t>(at::kLong, device, positions_); }
  Tensor Weights(c10::Device device) const { return Upload<int32_t>(at::kInt, device, quantised_); }

 private:
  // The inputs within reach of the output's centre. Their weights add up to 1.
  void AddArea(int64_t o) {
    const double centre = step_ * (static_cast<double>(o) + 0.5), inverse = step_ >= 1 ? 1 / step_ : 1;
    const double low = centre - reach_ + 0.5, high = centre + reach_ + 0.5;
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(low), 0);
    const int64_t end = std::min(static_cast<int64_t>(high), in_);
    const int64_t size = std::clamp<int64_t>(end - first, 0, count_);
    double* const weights = Start(o, first);
    double total = 0;
    for (int64_t k = 0; k < size; ++k) {
      weights[k] = WeightAt(kind_, (static_cast<double>(k + first) - centre + 0.5) * inverse);
      total += weights[k];
    }
    for (int64_t k = 0; k < size && total != 0; ++k) weights[k] /= total;
  }

  // The two or four nearest inputs. Weights of inputs beyond the border are added to the border's.
  void AddNeighbours(int64_t o, bool align_corners) {
    const double source =
        at::native::area_pixel_compute_source_index<double>(step_, o, align_corners, IsCubic(kind_));
    int64_t nearest;
    double fraction;
    at::native::guard_index_and_lambda(source, in_, nearest, fraction);
    const int64_t half = count_ / 2, begin = nearest - half + 1;
    const int64_t first = std::max<int64_t>(begin, 0);
    const int64_t size = std::clamp<int64_t>(std::min(nearest + half + 1, in_) - first, 0, count_);
    double* const weights = Start(o, first);
    for (int64_t k = 0; k < count_; ++k) {
      const int64_t at = std::clamp<int64_t>(begin + k - first, 0, size - 1);
      weights[at] += WeightAt(kind_, static_cast<double>(k + 1 - half) - fraction);
    }
  }

  // Sets the positions of output `o`, and returns its weights, which are 0.
  double* Start(int64_t o, int64_t first) {
    for (int64_t k = 0; k < count_; ++k)
      positions_[static_cast<size_t>(o * count_ + k)] = std::min(first + k, in_ - 1);
    return weights_.data() + o * count_;
  }

  void Quantise() {
    double most = 0;
    for (const double weight : weights_) most = std::max(most, weight);
    for (digits_ = 0; digits_ < kMaxDigits; ++digits_) {
      const double next = 0.5 + most * static_cast<double>(1 << (digits_ + 1));
      if (static_cast<int>(next) >= 1 << kWeightBits) break;
    }
    quantised_.reserve(weights_.size());
    for (const double weight : weights_) {
      const double scaled = weight * static_cast<double>(1 << digits_);
      quantised_.push_back(static_cast<int16_t>(static_cast<int>(scaled < 0 ? scaled - 0.5 : scaled + 0.5)));
    }
  }

  template <class T>
  Tensor Upload(at::ScalarType type, c10::Device device, const std::vector<T>& values) const {
    Tensor host = at::empty({static_cast<int64_t>(values.size()) / count_, count_}, type);
    std::ranges::copy(values, host.data_ptr<T>());
    return host.t().contiguous().to(device);
  }

  const ResampleKind kind_;
  const int64_t in_;
  const double step_;  // inputs for each output
  double reach_ = 0;
  int64_t count_ = 0;
  int digits_ = 0;
  std::vector<int64_t> positions_;
  std::vector<double> weights_;
  std::vector<int32_t> quantised_;
};

Tensor Along(const Tensor& self, int64_t dim, const Taps& taps) {
  const Tensor positions = taps.Positions(self.device()), weights = taps.Weights(self.device());
  std::vector<int64_t> shape(static_cast<size_t>(self.dim() - dim), 1);
  shape[0] = weights.size(1);
  Tensor sum;
  for (int64_t k = 0; k < taps.count(); ++k) {
    const Tensor inputs = self.index_select(dim, positions.select(0, k)),
                 weight = weights.select(0, k).view(shape);
    sum = sum.defined() ? sum.addcmul_(inputs, weight) : at::mul(inputs, weight);
  }
  if (taps.digits() > 0) sum.add_(1 << (taps.digits() - 1));
  return sum.bitwise_right_shift_(taps.digits()).clamp_(0, 255).to(at::kByte);
}

}  // namespace

void InterpolateBytes(const Tensor& self, const Tensor& out, ResampleKind kind, bool align_corners,
                      const std::array<std::optional<double>, 2>& scales) {
  Tensor result = self.contiguous();
  for (const int64_t dim : {int64_t{3}, int64_t{2}}) {
    if (out.size(dim) == self.size(dim)) continue;
    result =
        Along(result, dim,
              Taps(kind, self.size(dim), out.size(dim), align_corners, scales[static_cast<size_t>(dim - 2)]));
  }
  out.copy_(result);
}

}  // namespace xpud::shim
