// Operators composed of others: extremes with their positions, standard deviations, triangles, membership,
// equality, small products, norms of slices, conjugation.
#include <ATen/ATen.h>
#include <ATen/TensorIterator.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/addr_native.h>
#include <torch/library.h>

#include "proto/ops/families/compact.h"
#include "proto/ops/family.h"
#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/engines/map.h"
#include "sdk/torch/csrc/engines/reduce.h"
#include "sdk/torch/csrc/fallback/fallback.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {
namespace {

using at::Tensor;

// ---- extremes ----

Tensor Extreme(const ops::Row& row, const Tensor& self, c10::IntArrayRef dims, bool keepdim) {
  return LaunchReduce(row, self, dims, keepdim, *ToDType(self.scalar_type()), self.scalar_type());
}

bool CanReduce(const Tensor& self) {
  return IsOnDevice(self) && IsSupported(self.scalar_type(), ops::kNumericTypes) && self.numel() > 0 &&
         self.dim() <= ops::kMaxRank;
}

Tensor Max(const Tensor& self) {
  return CanReduce(self) ? at::amax(self) : FallbackOf<at::_ops::max>::Call(self);
}
Tensor Min(const Tensor& self) {
  return CanReduce(self) ? at::amin(self) : FallbackOf<at::_ops::min>::Call(self);
}

std::tuple<Tensor, Tensor> MinAndMax(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  if (!CanReduce(self)) return FallbackOf<at::_ops::aminmax>::Call(self, dim, keepdim);
  if (!dim.has_value() || self.dim() == 0) {
    if (dim.has_value()) at::maybe_wrap_dim(*dim, int64_t{0});
    auto shape = keepdim ? std::vector<int64_t>(static_cast<size_t>(self.dim()), 1) : std::vector<int64_t>();
    return {at::amin(self).view(shape), at::amax(self).view(shape)};
  }
  return {at::amin(self, *dim, keepdim), at::amax(self, *dim, keepdim)};
}

std::tuple<Tensor, Tensor> ExtremeAndPosition(const ops::Row& value, const ops::Row& position,
                                              const Tensor& self, int64_t dim, bool keepdim) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  const c10::IntArrayRef dims = self.dim() == 0 ? c10::IntArrayRef() : c10::IntArrayRef(dim);
  return {Extreme(value, self, dims, keepdim),
          LaunchReduce(position, self, dims, keepdim, *ToDType(self.scalar_type()), at::kLong)};
}

std::tuple<Tensor, Tensor> MaxDim(const Tensor& self, int64_t dim, bool keepdim) {
  if (!CanReduce(self)) return FallbackOf<at::_ops::max_dim>::Call(self, dim, keepdim);
  return ExtremeAndPosition(ops::RowOf("amax"), ops::RowOf("argmax"), self, dim, keepdim);
}
std::tuple<Tensor, Tensor> MinDim(const Tensor& self, int64_t dim, bool keepdim) {
  if (!CanReduce(self)) return FallbackOf<at::_ops::min_dim>::Call(self, dim, keepdim);
  return ExtremeAndPosition(ops::RowOf("amin"), ops::RowOf("argmin"), self, dim, keepdim);
}

// ---- composed ----

// Raises ATen's errors for dimensions that are out of range or given twice.
std::vector<int64_t> WrappedDims(const Tensor& self, at::OptionalIntArrayRef dims) {
  std::vector<int64_t> wrapped;
  if (dims.has_value()) wrapped.assign(dims->begin(), dims->end());
  at::maybe_wrap_dims(wrapped, self.dim());
  (void)at::dim_list_to_bitset(c10::IntArrayRef(wrapped), static_cast<size_t>(self.dim()));
  return wrapped;
}

// The warning about degrees of freedom names the operator that the program called.
std::tuple<Tensor, Tensor> VarAndMean(std::string_view op, const Tensor& self, at::OptionalIntArrayRef dims,
                                      const std::optional<at::Scalar>& correction, bool keepdim) {
  static const ops::Row& row = ops::RowOf("xpud::var_mean");
  if (!CanReduce(self) || !IsSupported(self.scalar_type(), row.dtypes))
    return {at::var(self, dims, correction, keepdim), at::mean(self, dims, keepdim)};
  const std::vector<int64_t> reduced = WrappedDims(self, dims);
  const double subtracted = correction.value_or(1).toDouble();
  const ops::Number attribute = ops::Number::Real(subtracted);
  const std::vector<Tensor> both = LaunchReductions(row, self, reduced, keepdim, *ToDType(self.scalar_type()),
                                                    self.scalar_type(), {&attribute, 1});
  WarnAboutFreedom(op, self, both[0], subtracted);
  return {both[0], both[1]};
}

Tensor StdCorrection(const Tensor& self, at::OptionalIntArrayRef dims,
                     const std::optional<at::Scalar>& correction, bool keepdim) {
  static const ops::Row& row = ops::RowOf("var.correction");
  if (!CanReduce(self) || !IsSupported(self.scalar_type(), row.dtypes))
    return at::var(self, dims, correction, keepdim).sqrt_();
  const std::vector<int64_t> reduced = WrappedDims(self, dims);
  const double subtracted = correction.value_or(1).toDouble();
  const ops::Number attribute = ops::Number::Real(subtracted);
  Tensor out = LaunchReduce(row, self, reduced, keepdim, *ToDType(self.scalar_type()), self.scalar_type(),
                            {&attribute, 1});
  WarnAboutFreedom("std", self, out, subtracted);
  return out.sqrt_();
}

std::tuple<Tensor, Tensor> VarMean(const Tensor& self, at::OptionalIntArrayRef dims,
                                   const std::optional<at::Scalar>& correction, bool keepdim) {
  return VarAndMean("var_mean", self, dims, correction, keepdim);
}

std::tuple<Tensor, Tensor> StdMean(const Tensor& self, at::OptionalIntArrayRef dims,
                                   const std::optional<at::Scalar>& correction, bool keepdim) {
  auto [var, mean] = VarAndMean("std_mean", self, dims, correction, keepdim);
  return {var.sqrt_(), mean};
}

Tensor ChannelShuffle(const Tensor& self, int64_t groups) {
  TORCH_CHECK(self.dim() > 2, "channel_shuffle expects input with > 2 dims, but got input with sizes ",
              self.sizes());
  TORCH_CHECK(groups > 0,
              "Number of groups to divide channels in must be positive. Value of groups:", groups);
  TORCH_CHECK(self.size(1) % groups == 0, "Number of channels must be divisible by groups. Got ",
              self.size(1), " channels and ", groups, " groups.");
  std::vector<int64_t> grouped = self.sizes().vec();
  grouped[1] /= groups;
  grouped.insert(grouped.begin() + 1, groups);
  return self.reshape(grouped).transpose(1, 2).reshape(self.sizes()).contiguous(self.suggest_memory_format());
}

// True on one side of `diagonal`, by column minus row.
Tensor TriangleMask(int64_t row, int64_t col, int64_t diagonal, bool lower, c10::Device device) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  const Tensor columns = at::arange(col, options),
               rows = at::arange(row, options).unsqueeze(1).add_(diagonal);
  return lower ? columns.le(rows) : columns.ge(rows);
}

// Keeps the elements on one side of `diagonal`.
Tensor Triangle(const Tensor& self, int64_t diagonal, bool lower) {
  TORCH_CHECK(self.dim() >= 2, lower ? "tril" : "triu", ": input tensor must have at least 2 dimensions");
  const Tensor kept = TriangleMask(self.size(-2), self.size(-1), diagonal, lower, self.device());
  return at::where(kept, self, at::scalar_tensor(0, self.options().device(at::kCPU))).contiguous();
}
Tensor Tril(const Tensor& self, int64_t diagonal) { return Triangle(self, diagonal, true); }
Tensor Triu(const Tensor& self, int64_t diagonal) { return Triangle(self, diagonal, false); }

const ops::Row& CountRow() {
  static const ops::Row& row = ops::RowOf("xpud::nonzero_ends");
  return row;
}

// Writes the positions of the elements that are not 0 to `rows`, which has room for all of them.
void SendNonzero(const Tensor& self, const Tensor& rows) {
  static const ops::Row& compact = ops::RowOf("nonzero");
  const int64_t blocks = (self.numel() + ops::kCountBlock - 1) / ops::kCountBlock;
  const Tensor ends = MakeEmpty({blocks}, at::kLong, self.device());
  Send(CountRow(), ops::CountCall<TensorRef>{.ends = Describe(ends), .self = Describe(self)}, self);
  Send(compact,
       ops::CompactCall<TensorRef>{.out = Describe(rows), .self = Describe(self), .ends = Describe(ends)},
       self);
}

// Indices of the elements on one side. Their number is known, so the call does not wait.
Tensor TriangleIndices(int64_t row, int64_t col, int64_t offset, bool lower, c10::Device device,
                       at::ScalarType type) {
  const int64_t below = at::native::get_tril_size(row, col, lower ? offset : offset - 1);
  const int64_t size = lower ? below : row * col - below;
  const Tensor out = MakeEmpty({2, size}, at::kLong, device);
  if (size > 0) {
    const Tensor mask = TriangleMask(row, col, offset, lower, device), rows = out.t();
    SendNonzero(mask, rows);
  }
  return out.to(type);
}

template <bool kLower>
Tensor IndicesOfTriangle(int64_t row, int64_t col, int64_t offset, std::optional<at::ScalarType> type,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> /*pin*/) {
  at::native::check_args(row, col, layout);
  const c10::Device place = c10::impl::getDeviceGuardImpl(kDeviceType)->getDevice();
  const bool given = device.has_value() && device->has_index();
  return TriangleIndices(row, col, offset, kLower, given ? *device : place, type.value_or(at::kLong));
}

// The positions of the first `size` elements that are not 0, then rows of `fill`. The size is known, so the
// call does not wait.
Tensor NonzeroOfSize(const Tensor& self, int64_t size, int64_t fill) {
  if (!IsServed(self, CountRow().dtypes)) return FallbackOf<at::_ops::nonzero_static>::Call(self, size, fill);
  TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
  // The device finds all of them, and refuses too small an output.
  const Tensor all =
      at::full({std::max(size, self.numel()), self.dim()}, fill, self.options().dtype(at::kLong));
  if (all.numel() > 0 && self.numel() > 0) {
    const Tensor rows = all.narrow(0, 0, self.numel());
    SendNonzero(self, rows);
  }
  return all.size(0) == size ? all : all.narrow(0, 0, size).clone();
}

// ---- norm: the older form of linalg_vector_norm ----

Tensor Norm(const Tensor& self, const std::optional<at::Scalar>& p, c10::IntArrayRef dim, bool keepdim) {
  if (!IsOnDevice(self) || !IsSupported(self.scalar_type(), ops::kFloatTypes))
    return FallbackOf<at::_ops::norm_ScalarOpt_dim>::Call(self, p, dim, keepdim);
  return at::linalg_vector_norm(self, p.value_or(2), dim, keepdim);
}
Tensor NormOfType(const Tensor& self, const std::optional<at::Scalar>& p, c10::IntArrayRef dim, bool keepdim,
                  at::ScalarType type) {
  if (!IsOnDevice(self) || !IsSupported(self.scalar_type(), ops::kFloatTypes))
    return FallbackOf<at::_ops::norm_ScalarOpt_dim_dtype>::Call(self, p, dim, keepdim, type);
  return at::linalg_vector_norm(self, p.value_or(2), dim, keepdim, type);
}

Tensor Addr(const Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
            const at::Scalar& alpha) {
  TORCH_CHECK(a.dim() == 1 && b.dim() == 1, "addr: Expected 1-D argument vec1 and vec2, but got ", a.dim(),
              "-D and ", b.dim(), "-D");
  return at::native::math_addr(self, a, b, beta, alpha);
}

// ---- small products and sums ----

Tensor Trace(const Tensor& self) {
  TORCH_CHECK(self.dim() == 2, "trace: expected a matrix, but got tensor with dim ", self.dim());
  return self.diagonal().sum();
}

Tensor Vdot(const Tensor& self, const Tensor& other) {
  return self.is_complex() || other.is_complex() ? FallbackOf<at::_ops::vdot>::Call(self, other)
                                                 : at::dot(self, other);
}

// The sum of a batch's products is one product, of [N, batch K] and [batch K, M].
Tensor Addbmm(const Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
              const at::Scalar& alpha) {
  if (!IsServed(a, ops::kFloatTypes) || a.dim() != 3 || b.dim() != 3 || a.size(0) != b.size(0) ||
      a.size(2) != b.size(1)) {
    return FallbackOf<at::_ops::addbmm>::Call(self, a, b, beta, alpha);
  }
  const int64_t inner = a.size(0) * a.size(2);
  return at::addmm(self, a.transpose(0, 1).reshape({a.size(1), inner}), b.reshape({inner, b.size(2)}), beta,
                   alpha);
}
// ATen's kernel resizes `self`; the fallback does so too.
Tensor& AddbmmInPlace(Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                      const at::Scalar& alpha) {
  const bool fits = a.dim() == 3 && b.dim() == 3 && self.dim() == 2 && self.size(0) == a.size(1) &&
                    self.size(1) == b.size(2);
  if (!fits) return FallbackOf<at::_ops::addbmm_>::Call(self, a, b, beta, alpha);
  return self.copy_(at::addbmm(self, a, b, beta, alpha));
}

Tensor Cross(const Tensor& self, const Tensor& other, int64_t dim) {
  static const ops::Row& row = ops::RowOf("xpud::difference_of_products");
  const bool served = IsServed(self, row.dtypes) && IsServed(other, row.dtypes) &&
                      self.dim() == other.dim() && self.dim() > 0 &&
                      self.scalar_type() == other.scalar_type() && self.device() == other.device();
  if (!served) return FallbackOf<at::_ops::linalg_cross>::Call(self, other, dim);
  TORCH_CHECK(self.size(dim) == 3 && other.size(dim) == 3, "linalg.cross: inputs dimension ", dim,
              " must have length 3. Got ", self.size(dim), " and ", other.size(dim));
  const std::vector<int64_t> sizes = at::infer_size(self.sizes(), other.sizes());
  const Tensor a = self.expand(sizes), b = other.expand(sizes),
               out = MakeEmpty(sizes, self.scalar_type(), self.device());
  const auto part = [&](const Tensor& tensor, int64_t k) { return tensor.narrow(dim, k % 3, 1); };
  for (int64_t k = 0; k < 3; ++k) {
    const Tensor to = part(out, k), a1 = part(a, k + 1), b2 = part(b, k + 2), a2 = part(a, k + 2),
                 b1 = part(b, k + 1);
    const MapInput inputs[] = {a1, b2, a2, b1};
    LaunchMap(row, *ToDType(out.scalar_type()), {&to, 1}, inputs);
  }
  return out;
}

// Each slice along `dim` whose norm exceeds `most` is scaled to it.
Tensor Renorm(const Tensor& self, const at::Scalar& p, int64_t dim, const at::Scalar& most) {
  if (!IsServed(self, ops::kFloatTypes)) return FallbackOf<at::_ops::renorm>::Call(self, p, dim, most);
  TORCH_CHECK(p.toDouble() > 0.0, "renorm: non-positive norm not supported");
  TORCH_CHECK(most.toDouble() >= 0.0, "renorm: expected maxnorm to be >= 0 but got ", most.toDouble());
  TORCH_CHECK(self.dim() > 1, "renorm: input needs at least 2 dimensions, got ", self.dim(), " dimensions");
  dim = at::maybe_wrap_dim(dim, self.dim());
  std::vector<int64_t> others;
  for (int64_t d = 0; d < self.dim(); ++d)
    if (d != dim) others.push_back(d);
  const auto type = c10::isReducedFloatingType(self.scalar_type()) ? at::kFloat : self.scalar_type();
  const Tensor norm = at::linalg_vector_norm(self, p, others, /*keepdim=*/true, type);
  const Tensor factor = at::add(norm, 1e-7).reciprocal_().mul_(most).masked_fill_(norm.le(most), 1);
  return self.mul(factor.to(self.scalar_type())).contiguous();
}

// ---- conjugation ----

Tensor& ConjugateInPlace(Tensor& self) {
  if (self.is_complex()) at::view_as_real(self).select(-1, 1).neg_();
  return self;
}

Tensor& ConjugateOut(const Tensor& self, Tensor& out) {
  at::TensorIterator::unary_op(out, self);  // ATen's checks, and the output's shape
  out.copy_(self);
  return ConjugateInPlace(out);
}

Tensor CountNonzero(const Tensor& self, c10::IntArrayRef dims) { return at::ne(self, 0).sum(dims); }

bool Equal(const Tensor& self, const Tensor& other) {
  CheckSameDevice(self.device(), other.device());
  if (self.sizes() != other.sizes()) return false;
  if (self.numel() == 0) return true;
  return at::all(at::eq(self, other)).item().toBool();
}

Tensor& EyeOfSizes(int64_t n, int64_t columns, Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be greater or equal to 0, got ", n);
  TORCH_CHECK(columns >= 0, "m must be greater or equal to 0, got ", columns);
  out.resize_({n, columns}).zero_();
  out.diagonal().fill_(1);
  return out;
}
Tensor& Eye(int64_t n, Tensor& out) { return EyeOfSizes(n, n, out); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("eye.out", XPUD_FN(Eye));
  m.impl("eye.m_out", XPUD_FN(EyeOfSizes));
  m.impl("max", XPUD_FN(Max));
  m.impl("min", XPUD_FN(Min));
  m.impl("aminmax", XPUD_FN(MinAndMax));
  m.impl("max.dim", XPUD_FN(MaxDim));
  m.impl("min.dim", XPUD_FN(MinDim));
  m.impl("std.correction", XPUD_FN(StdCorrection));
  m.impl("std_mean.correction", XPUD_FN(StdMean));
  m.impl("norm.ScalarOpt_dim", XPUD_FN(Norm));
  m.impl("norm.ScalarOpt_dim_dtype", XPUD_FN(NormOfType));
  m.impl("channel_shuffle", XPUD_FN(ChannelShuffle));
  m.impl("var_mean.correction", XPUD_FN(VarMean));
  m.impl("tril", XPUD_FN(Tril));
  m.impl("tril_indices", XPUD_FN(IndicesOfTriangle<true>));
  m.impl("triu_indices", XPUD_FN(IndicesOfTriangle<false>));
  m.impl("triu", XPUD_FN(Triu));
  m.impl("addr", XPUD_FN(Addr));
  m.impl("nonzero_static", XPUD_FN(NonzeroOfSize));
  m.impl("trace", XPUD_FN(Trace));
  m.impl("vdot", XPUD_FN(Vdot));
  m.impl("addbmm", XPUD_FN(Addbmm));
  m.impl("addbmm_", XPUD_FN(AddbmmInPlace));
  m.impl("linalg_cross", XPUD_FN(Cross));
  m.impl("renorm", XPUD_FN(Renorm));
  m.impl("conj_physical_", XPUD_FN(ConjugateInPlace));
  m.impl("conj_physical.out", XPUD_FN(ConjugateOut));
  m.impl("count_nonzero.dim_IntList", XPUD_FN(CountNonzero));
  m.impl("equal", XPUD_FN(Equal));
}

}  // namespace
}  // namespace xpud::shim
