// Histograms on the device: bincount, histogram, and histc, which accepts integers on CUDA but not on
// PyTorch's CPU.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/call/operand.h"
#include "sdk/torch/csrc/fallback/fallback.h"

namespace xpud::shim {
namespace {

using at::Tensor;

// The inclusive bounds of a histogram.
struct Range {
  int64_t low, high;
};

// Returns `low` and `high`, or the range of the data if they are equal. If these bounds are equal too, each
// is moved outwards by one.
Range RangeOf(const Tensor& self, const at::Scalar& low, const at::Scalar& high) {
  Range range = {low.to<int64_t>(), high.to<int64_t>()};
  if (range.low == range.high && self.numel() > 0) {
    const Tensor ends = at::stack({self.min(), self.max()}).to(at::kLong).cpu();
    range = {ends[0].item<int64_t>(), ends[1].item<int64_t>()};
  }
  if (range.low == range.high) range = {range.low - 1, range.high + 1};
  TORCH_CHECK(range.low < range.high, "max must be larger than min");
  return range;
}

// Returns the bin of each value, in integer arithmetic as CUDA does; `bins` for values outside the range.
Tensor BinsOf(const Tensor& values, int64_t bins, Range range) {
  const Tensor outside = values.lt(range.low).logical_or_(values.gt(range.high));
  const Tensor bin = at::sub(values, range.low).mul_(bins);
  return at::floor_divide(bin, range.high - range.low).clamp_max_(bins - 1).masked_fill_(outside, bins);
}

// Returns `bins` sums: weights[i] is added to sum values[i]. Weights whose value is `bins` are dropped.
Tensor Count(const Tensor& values, const Tensor& weights, int64_t bins) {
  const Tensor counts = at::zeros({bins + 1}, weights.options());
  counts.index_add_(0, values, weights);
  return counts.narrow(0, 0, bins);
}

bool IsServed(const Tensor& self) {
  return IsOnDevice(self) && at::isIntegralType(self.scalar_type(), /*includeBool=*/false) &&
         IsSupported(self.scalar_type());
}

bool IsServedFloat(const Tensor& self) {
  return IsOnDevice(self) && IsSupported(self.scalar_type(), ops::kFloatTypes) && self.numel() > 0;
}

// Returns how many numbers of 0 .. bins - 1 there are of each, by sorting.
Tensor CountSorted(const Tensor& numbers, int64_t bins) {
  const Tensor sorted = std::get<0>(numbers.reshape({-1}).sort());
  const Tensor starts = at::searchsorted(sorted, at::arange(bins + 1, sorted.options()));
  return starts.narrow(0, 1, bins).sub(starts.narrow(0, 0, bins));
}

// Of floating numbers, in their own arithmetic. Reads the ends of the data if the range is empty.
Tensor HistcOfFloats(const Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  double low = min.toDouble(), high = max.toDouble();
  if (low == high) {
    const Tensor ends = at::stack({self.min(), self.max()}).to(at::kDouble).cpu();
    low = ends[0].item<double>();
    high = ends[1].item<double>();
  }
  if (low == high) {
    low -= 1;
    high += 1;
  }
  TORCH_CHECK(std::isfinite(low) && std::isfinite(high), "histc: range of [", low, ", ", high,
              "] is not finite");
  TORCH_CHECK(low < high, "torch.histc: max must be larger than min");
  const Tensor inside = self.ge(low).logical_and_(self.le(high));
  const Tensor scaled = self.sub(low).mul_(bins).div_(high - low);
  const Tensor bin =
      at::where(inside, scaled, at::scalar_tensor(bins, self.options().device(at::kCPU))).to(at::kLong);
  return CountSorted(at::where(inside, bin.clamp_max(bins - 1), bin), bins).to(self.scalar_type());
}

Tensor Histc(const Tensor& self, int64_t bins, const at::Scalar& low, const at::Scalar& high) {
  const bool floats = IsServedFloat(self);
  if (!floats && !IsServed(self)) return FallbackOf<at::_ops::histc>::Call(self, bins, low, high);
  TORCH_CHECK(bins > 0, "bins must be > 0");
  if (floats) return HistcOfFloats(self, bins, low, high);
  const Range range = RangeOf(self, low, high);
  const Tensor values = self.reshape({-1}).to(at::kLong);
  return Count(BinsOf(values, bins, range), at::ones_like(values), bins)
      .to(self.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

Tensor Bincount(const Tensor& self, const std::optional<Tensor>& weights, int64_t least) {
  const bool weighted = weights.has_value() && weights->defined();
  if (!IsServed(self) || (weighted && !IsOnDevice(*weights)))
    return FallbackOf<at::_ops::bincount>::Call(self, weights, least);
  TORCH_CHECK(least >= 0, "minlength should be >= 0");
  TORCH_CHECK(self.dim() == 1, "bincount only supports 1-d non-negative integral inputs.");
  // One read of both ends.
  const Tensor ends = self.numel() == 0 ? Tensor() : at::stack({self.min(), self.max()}).to(at::kLong).cpu();
  TORCH_CHECK(self.numel() == 0 || ends[0].item<int64_t>() >= 0,
              "bincount only supports 1-d non-negative integral inputs.");
  TORCH_CHECK(!weighted || (weights->dim() == 1 && weights->size(0) == self.size(0)),
              "weights should be 1-d and have the same length as input");
  const int64_t bins = self.numel() == 0 ? least : std::max(ends[1].item<int64_t>() + 1, least);
  const Tensor values = self.to(at::kLong);
  if (!weighted) return Count(values, at::ones_like(values), bins).clone();
  return Count(values, weights->scalar_type() == at::kFloat ? *weights : weights->to(at::kDouble), bins)
      .clone();
}

// ---- torch.histogram: counts between edges; the last bin has both of its ends

bool IsServedHistogram(const Tensor& self, const std::optional<Tensor>& weight) {
  const bool weighted = weight.has_value() && weight->defined();
  return IsServedFloat(self) && (!weighted || (IsOnDevice(*weight) && weight->sizes() == self.sizes() &&
                                               weight->scalar_type() == self.scalar_type()));
}

Tensor Histogram(const Tensor& self, const Tensor& edges, const std::optional<Tensor>& weight, bool density) {
  const int64_t bins = edges.numel() - 1;
  const Tensor values = self.reshape({-1}), last = edges.narrow(0, bins, 1);
  Tensor bin = at::searchsorted(edges, values, /*out_int32=*/false, /*right=*/true).sub_(1);
  bin.masked_fill_(values.eq(last), bins - 1);
  bin.masked_fill_(bin.lt(0), bins);
  Tensor counts = weight.has_value() && weight->defined() ? Count(bin, weight->reshape({-1}), bins).clone()
                                                          : CountSorted(bin, bins).to(self.scalar_type());
  if (density) counts.div_(counts.sum().mul(edges.diff()));
  return counts;
}

std::tuple<Tensor, Tensor> HistogramOfEdges(const Tensor& self, const Tensor& edges,
                                            const std::optional<Tensor>& weight, bool density) {
  const bool fits =
      edges.dim() == 1 && edges.numel() > 1 && IsOnDevice(edges) && edges.scalar_type() == self.scalar_type();
  if (!IsServedHistogram(self, weight) || !fits)
    return FallbackOf<at::_ops::histogram_bins_tensor>::Call(self, edges, weight, density);
  const Tensor own = edges.clone(at::MemoryFormat::Contiguous);
  return {Histogram(self, own, weight, density), own};
}

// Reads the ends of the data, unless they are given.
std::tuple<Tensor, Tensor> HistogramOfCount(const Tensor& self, int64_t bins,
                                            std::optional<c10::ArrayRef<double>> range,
                                            const std::optional<Tensor>& weight, bool density) {
  const bool given = range.has_value();
  if (!IsServedHistogram(self, weight) || bins <= 0 || (given && range->size() != 2))
    return FallbackOf<at::_ops::histogram_bin_ct>::Call(self, bins, range, weight, density);
  double low = given ? (*range)[0] : 0, high = given ? (*range)[1] : 0;
  if (!given) {
    const Tensor ends = at::stack({self.min(), self.max()}).to(at::kDouble).cpu();
    low = ends[0].item<double>();
    high = ends[1].item<double>();
  }
  TORCH_CHECK(std::isfinite(low) && std::isfinite(high), "torch.histogram: range [", low, ", ", high,
              "] is not finite");
  TORCH_CHECK(low <= high, "torch.histogram: min should not exceed max, but got min ", low, " max ", high);
  if (low == high) {
    low -= 0.5;
    high += 0.5;
  }
  const Tensor edges = at::linspace(low, high, bins + 1, self.options());
  return {Histogram(self, edges, weight, density), edges};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("histogram.bins_tensor", XPUD_FN(HistogramOfEdges));
  m.impl("histogram.bin_ct", XPUD_FN(HistogramOfCount));
  m.impl("histc", XPUD_FN(Histc));
  m.impl("bincount", XPUD_FN(Bincount));
}

}  // namespace
}  // namespace xpud::shim
