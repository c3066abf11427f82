// Layers and losses with rows of their own: softmax, layer and RMS norm, embedding, negative log likelihood.
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/layer_norm.h>
#include <torch/library.h>

#include <limits>

#include "proto/ops/families/gather.h"
#include "proto/ops/families/layer_norm.h"
#include "proto/ops/families/nll_loss.h"
#include "proto/ops/families/scatter_add.h"
#include "proto/ops/families/softmax.h"
#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/engines/copy.h"
#include "sdk/torch/csrc/fallback/fallback.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {
namespace {

using at::Tensor;

// ---- softmax ----

Tensor SoftmaxOf(const ops::Row& row, const Tensor& input, int64_t dim, bool half_to_float) {
  const Tensor source = half_to_float ? ContiguousAs(input, at::kFloat) : input;
  Tensor out = MakeEmpty(source.sizes(), source.scalar_type(), source.device());
  if (out.numel() == 0) return out;
  Send(row,
       ops::SoftmaxCall<TensorRef>{
           .out = Describe(out), .self = Describe(source), .dim = at::maybe_wrap_dim(dim, source.dim())},
       source);
  return out;
}

Tensor Softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  static const ops::Row& row = ops::RowOf("_softmax");
  return IsServed(self, row.dtypes) ? SoftmaxOf(row, self, dim, half_to_float)
                                    : FallbackOf<at::_ops::_softmax>::Call(self, dim, half_to_float);
}

Tensor LogSoftmax(const Tensor& self, int64_t dim, bool half_to_float) {
  static const ops::Row& row = ops::RowOf("_log_softmax");
  return IsServed(self, row.dtypes) ? SoftmaxOf(row, self, dim, half_to_float)
                                    : FallbackOf<at::_ops::_log_softmax>::Call(self, dim, half_to_float);
}

Tensor SoftmaxGradient(const ops::Row& row, const Tensor& gradient, const Tensor& output, int64_t dim,
                       at::ScalarType type) {
  Tensor out = MakeEmpty(gradient.sizes(), gradient.scalar_type(), gradient.device());
  if (out.numel() == 0) return type == out.scalar_type() ? out : ContiguousAs(out, type);
  Send(row,
       ops::SoftmaxBackwardCall<TensorRef>{.grad_input = Describe(out),
                                           .grad_output = Describe(gradient),
                                           .output = Describe(output),
                                           .dim = at::maybe_wrap_dim(dim, gradient.dim())},
       gradient);
  return ContiguousAs(out, type);
}

Tensor SoftmaxBackward(const Tensor& gradient, const Tensor& output, int64_t dim, at::ScalarType type) {
  static const ops::Row& row = ops::RowOf("_softmax_backward_data");
  if (IsServed(gradient, row.dtypes) && gradient.scalar_type() == output.scalar_type())
    return SoftmaxGradient(row, gradient, output, dim, type);
  return FallbackOf<at::_ops::_softmax_backward_data>::Call(gradient, output, dim, type);
}

Tensor LogSoftmaxBackward(const Tensor& gradient, const Tensor& output, int64_t dim, at::ScalarType type) {
  static const ops::Row& row = ops::RowOf("_log_softmax_backward_data");
  if (IsServed(gradient, row.dtypes) && gradient.scalar_type() == output.scalar_type())
    return SoftmaxGradient(row, gradient, output, dim, type);
  return FallbackOf<at::_ops::_log_softmax_backward_data>::Call(gradient, output, dim, type);
}

// ---- layer norm ----

// The input as M rows of N elements.
struct NormShape {
  NormShape(const Tensor& input, c10::IntArrayRef normalized)
      : axis(input.dim() - static_cast<int64_t>(normalized.size())) {
    TORCH_CHECK(!normalized.empty() && axis >= 0 && input.sizes().slice(axis) == normalized,
                "Given normalized_shape=", normalized, ", expected input with shape [*, ", normalized,
                "], but got input of size", input.sizes());
    matrix = {c10::multiply_integers(input.sizes().slice(0, axis)), c10::multiply_integers(normalized)};
    for (int64_t d = 0; d < input.dim(); ++d) statistics.push_back(d < axis ? input.size(d) : 1);
  }
  std::span<const int64_t> rows() const { return {matrix.data(), 1}; }
  std::span<const int64_t> columns() const { return {matrix.data() + 1, 1}; }
  int64_t axis;
  std::array<int64_t, 2> matrix;
  c10::SmallVector<int64_t, 8> statistics;
};

// For 16-bit inputs, mean and reciprocal standard deviation are f32.
at::ScalarType StatisticsType(const Tensor& input) {
  return c10::isReducedFloatingType(input.scalar_type()) ? at::kFloat : input.scalar_type();
}

std::optional<Tensor> Dense(const OptionalTensor& tensor) {
  return IsGiven(tensor) ? std::optional<Tensor>(Contiguous(*tensor)) : std::nullopt;
}
TensorRef RefAs(const std::optional<Tensor>& tensor, std::span<const int64_t> sizes) {
  return tensor.has_value() ? DescribeAs(*tensor, sizes) : TensorRef{};
}

std::tuple<Tensor, Tensor, Tensor> LayerNorm(const Tensor& input, c10::IntArrayRef normalized,
                                             const OptionalTensor& weight, const OptionalTensor& bias,
                                             double eps) {
  static const ops::Row& row = ops::RowOf("native_layer_norm");
  at::native::_check_layer_norm_inputs(input, normalized, weight.value_or(Tensor()), bias.value_or(Tensor()));
  const bool same_types = (!IsGiven(weight) || weight->scalar_type() == input.scalar_type()) &&
                          (!IsGiven(bias) || bias->scalar_type() == input.scalar_type());
  if (!IsServed(input, row.dtypes) || !same_types)
    return FallbackOf<at::_ops::native_layer_norm>::Call(input, normalized, weight, bias, eps);
  const NormShape shape(input, normalized);
  const Tensor x = Contiguous(input);
  const Tensor y = MakeEmpty(input.sizes(), input.scalar_type(), input.device());
  const Tensor mean = MakeEmpty(shape.statistics, StatisticsType(input), input.device());
  const Tensor rstd = MakeEmpty(shape.statistics, StatisticsType(input), input.device());
  if (y.numel() == 0) return {y, mean.zero_(), rstd.zero_()};
  const auto w = Dense(weight), b = Dense(bias);
  Send(row,
       ops::LayerNormCall<TensorRef>{.out = DescribeAs(y, shape.matrix),
                                     .mean = DescribeAs(mean, shape.rows()),
                                     .rstd = DescribeAs(rstd, shape.rows()),
                                     .input = DescribeAs(x, shape.matrix),
                                     .weight = RefAs(w, shape.columns()),
                                     .bias = RefAs(b, shape.columns()),
                                     .eps = eps},
       input);
  return {y, mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> LayerNormBackward(const Tensor& gradient, const Tensor& input,
                                                     c10::IntArrayRef normalized, const Tensor& mean,
                                                     const Tensor& rstd, const OptionalTensor& weight,
                                                     const OptionalTensor& bias, std::array<bool, 3> mask) {
  static const ops::Row& row = ops::RowOf("native_layer_norm_backward");
  const bool same_types = gradient.scalar_type() == input.scalar_type() &&
                          (!IsGiven(weight) || weight->scalar_type() == input.scalar_type());
  if (!IsServed(input, row.dtypes) || !same_types || input.numel() == 0) {
    return FallbackOf<at::_ops::native_layer_norm_backward>::Call(gradient, input, normalized, mean, rstd,
                                                                  weight, bias, mask);
  }
  const NormShape shape(input, normalized);
  const Tensor g = Contiguous(gradient), x = Contiguous(input), m = Contiguous(mean), r = Contiguous(rstd);
  const auto w = Dense(weight);
  Tensor dx = MakeEmpty(input.sizes(), input.scalar_type(), input.device());
  Tensor dw = MakeEmpty(normalized, input.scalar_type(), input.device());
  Tensor db = MakeEmpty(normalized, input.scalar_type(), input.device());
  Send(row,
       ops::LayerNormBackwardCall<TensorRef>{.grad_input = DescribeAs(dx, shape.matrix),
                                             .grad_weight = DescribeAs(dw, shape.columns()),
                                             .grad_bias = DescribeAs(db, shape.columns()),
                                             .grad_out = DescribeAs(g, shape.matrix),
                                             .input = DescribeAs(x, shape.matrix),
                                             .mean = DescribeAs(m, shape.rows()),
                                             .rstd = DescribeAs(r, shape.rows()),
                                             .weight = RefAs(w, shape.columns())},
       input);
  return {mask[0] ? dx : Tensor(), mask[1] ? dw : Tensor(), mask[2] ? db : Tensor()};
}

// ---- RMS norm ----

// ATen's epsilon for an input, if none is given.
double LeastOf(const Tensor& input) {
  const bool wide = c10::toRealValueType(input.scalar_type()) == at::kDouble;
  return wide ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
}

// For complex numbers and mixed types.
std::tuple<Tensor, Tensor> ComposedRmsNorm(const Tensor& input, const NormShape& shape,
                                           const OptionalTensor& weight, double eps) {
  const Tensor x = input.to(at::toOpMathType(input.scalar_type()));
  c10::SmallVector<int64_t, 8> inner;
  for (int64_t d = shape.axis; d < input.dim(); ++d) inner.push_back(d);
  const Tensor rstd = x.mul(x).mean(inner, /*keepdim=*/true).add_(eps).rsqrt_();
  const Tensor y = x.mul(rstd).to(input.scalar_type());
  return {IsGiven(weight) ? y.mul(*weight) : y, rstd};
}

std::tuple<Tensor, Tensor> RmsNorm(const Tensor& input, c10::IntArrayRef normalized,
                                   const OptionalTensor& weight, std::optional<double> eps) {
  static const ops::Row& row = ops::RowOf("_fused_rms_norm");
  const bool same_types = !IsGiven(weight) || weight->scalar_type() == input.scalar_type();
  const double least = LeastOf(input);
  if (!IsServed(input, row.dtypes) || !same_types)
    return ComposedRmsNorm(input, NormShape(input, normalized), weight, eps.value_or(least));
  const NormShape shape(input, normalized);
  TORCH_CHECK(!IsGiven(weight) || weight->sizes() == normalized,
              "Expected weight to be of same shape as normalized_shape, but got weight of shape ",
              IsGiven(weight) ? weight->sizes() : c10::IntArrayRef(), " and normalized_shape = ", normalized);
  const Tensor x = Contiguous(input);
  const Tensor y = MakeEmpty(input.sizes(), input.scalar_type(), input.device());
  const Tensor rstd = MakeEmpty(shape.statistics, StatisticsType(input), input.device());
  if (y.numel() == 0) return {y, rstd.zero_()};
  const auto w = Dense(weight);
  Send(row,
       ops::RmsNormCall<TensorRef>{.out = DescribeAs(y, shape.matrix),
                                   .rstd = DescribeAs(rstd, shape.rows()),
                                   .input = DescribeAs(x, shape.matrix),
                                   .weight = RefAs(w, shape.columns()),
                                   .eps = eps.value_or(least)},
       input);
  return {y, rstd};
}

// For complex numbers and mixed types. With h = x * rstd: dx = rstd * (g - h * mean of (g * h)).
std::tuple<Tensor, Tensor> ComposedRmsNormBackward(const Tensor& gradient, const Tensor& input,
                                                   const NormShape& shape, const Tensor& rstd,
                                                   const OptionalTensor& weight, std::array<bool, 2> mask) {
  c10::SmallVector<int64_t, 8> leading, inner;
  for (int64_t d = 0; d < input.dim(); ++d) (d < shape.axis ? leading : inner).push_back(d);
  const Tensor r = rstd.conj(), h = input.conj().mul(r);
  std::tuple<Tensor, Tensor> gradients;
  if (mask[0]) {
    const Tensor g = IsGiven(weight) ? gradient.mul(weight->conj()) : gradient;
    std::get<0>(gradients) = r.mul(g.sub(h.mul(g.mul(h).mean(inner, true)))).to(input.scalar_type());
  }
  if (mask[1] && IsGiven(weight)) {
    const Tensor products = gradient.mul(h);
    std::get<1>(gradients) = (leading.empty() ? products : products.sum(leading)).to(weight->scalar_type());
  }
  return gradients;
}

std::tuple<Tensor, Tensor> RmsNormBackward(const Tensor& gradient, const Tensor& input,
                                           c10::IntArrayRef normalized, const Tensor& rstd,
                                           const OptionalTensor& weight, std::array<bool, 2> mask) {
  static const ops::Row& row = ops::RowOf("_fused_rms_norm_backward");
  const NormShape shape(input, normalized);
  if (!IsServed(input, row.dtypes) || gradient.scalar_type() != input.scalar_type() ||
      (IsGiven(weight) && weight->scalar_type() != input.scalar_type()))
    return ComposedRmsNormBackward(gradient, input, shape, rstd, weight, mask);
  Tensor dx = MakeEmpty(input.sizes(), input.scalar_type(), input.device());
  Tensor dw = MakeEmpty(normalized, input.scalar_type(), input.device());
  if (input.numel() == 0) {
    dw.zero_();
  } else {
    const Tensor g = Contiguous(gradient), x = Contiguous(input), r = Contiguous(rstd);
    const auto w = Dense(weight);
    Send(row,
         ops::RmsNormBackwardCall<TensorRef>{.grad_input = DescribeAs(dx, shape.matrix),
                                             .grad_weight = DescribeAs(dw, shape.columns()),
                                             .grad_out = DescribeAs(g, shape.matrix),
                                             .input = DescribeAs(x, shape.matrix),
                                             .rstd = DescribeAs(r, shape.rows()),
                                             .weight = RefAs(w, shape.columns())},
         input);
  }
  return {mask[0] ? dx : Tensor(), mask[1] && IsGiven(weight) ? dw : Tensor()};
}

// ---- embedding ----

// An index as a tensor of one dimension.
struct FlatIndex {
  explicit FlatIndex(const Tensor& index) : held(Contiguous(index)), count{held.numel()} {}
  TensorRef Ref() const { return DescribeAs(held, count); }
  Tensor held;
  std::array<int64_t, 1> count;
};

void CheckIndex(const Tensor& index) {
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
              "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, "
              "Int; but got ",
              index.scalar_type(), " instead");
}

Tensor Embedding(const Tensor& weight, const Tensor& indices, int64_t padding, bool scale_by_frequency,
                 bool sparse) {
  static const ops::Row& row = ops::RowOf("embedding");
  TORCH_CHECK(weight.dim() == 2, "'weight' must be 2-D");
  CheckIndex(indices);
  if (!IsServed(weight, row.dtypes) || !IsOnDevice(indices)) {
    return FallbackOf<at::_ops::embedding>::Call(weight, indices, padding, scale_by_frequency, sparse);
  }
  c10::SmallVector<int64_t, 4> sizes(indices.sizes());
  sizes.push_back(weight.size(1));
  Tensor out = MakeEmpty(sizes, weight.scalar_type(), weight.device());
  if (out.numel() == 0) return out;
  const FlatIndex index(indices);
  const std::array<int64_t, 2> matrix = {index.count[0], weight.size(1)};
  Send(row,
       ops::EmbeddingCall<TensorRef>{
           .out = DescribeAs(out, matrix), .weight = Describe(weight), .index = index.Ref()},
       weight);
  return out;
}

Tensor EmbeddingBackward(const Tensor& gradient, const Tensor& indices, int64_t rows, int64_t padding,
                         bool scale_by_frequency) {
  static const ops::Row& row = ops::RowOf("embedding_dense_backward");
  CheckIndex(indices);
  if (!IsServed(gradient, row.dtypes) || scale_by_frequency) {
    return FallbackOf<at::_ops::embedding_dense_backward>::Call(gradient, indices, rows, padding,
                                                                scale_by_frequency);
  }
  const int64_t width = gradient.size(-1);
  Tensor out = MakeEmpty({rows, width}, gradient.scalar_type(), gradient.device());
  out.zero_();
  if (gradient.numel() == 0 || out.numel() == 0) return out;
  const Tensor dense = Contiguous(gradient);
  const FlatIndex index(indices);
  const std::array<int64_t, 2> matrix = {index.count[0], width};
  Send(row,
       ops::ScatterAddCall<TensorRef>{.out = Describe(out),
                                      .index = index.Ref(),
                                      .source = DescribeAs(dense, matrix),
                                      .padding_idx = padding},
       gradient);
  return out;
}

// ---- negative log likelihood ----

// Treats a [C] input as a batch of one.
struct NllShape {
  explicit NllShape(const Tensor& input)
      : logp(input.dim() == 1 ? std::array<int64_t, 2>{1, input.size(0)}
                              : std::array<int64_t, 2>{input.size(0), input.size(1)}),
        target{logp[0]} {}
  std::span<const int64_t> Loss(int64_t reduction) const {
    return reduction == at::Reduction::None ? std::span<const int64_t>(target) : std::span<const int64_t>();
  }
  std::array<int64_t, 2> logp;
  std::array<int64_t, 1> target;
};

void CheckNll(const Tensor& self, const Tensor& target, const OptionalTensor& weight) {
  TORCH_CHECK(self.dim() > 0 && self.dim() <= 2, "input tensor should be 1D or 2D");
  TORCH_CHECK(target.dim() <= 1, "0D or 1D target tensor expected, multi-target not supported");
  TORCH_CHECK(target.scalar_type() == at::kLong || target.scalar_type() == at::kByte,
              "expected target dtype to be Long or Byte, but got ", target.scalar_type());
  TORCH_CHECK_VALUE(self.dim() == 2 || target.numel() == 1,
                    "For 1D input, 1D target must have size 1, but got target size: ", target.numel());
  TORCH_CHECK(self.dim() == 1 || self.size(0) == target.size(0), "size mismatch (got input: ", self.sizes(),
              ", target: ", target.sizes(), ")");
  TORCH_CHECK(!IsGiven(weight) || (weight->dim() == 1 && weight->numel() == self.size(-1)),
              "weight tensor should be defined either for all ", self.size(-1),
              " classes or no classes but got weight tensor of shape: ",
              IsGiven(weight) ? weight->sizes() : c10::IntArrayRef());
}

bool IsNllServed(const ops::Row& row, const Tensor& self, const Tensor& target,
                 const OptionalTensor& weight) {
  return IsServed(self, row.dtypes) &&
         (target.scalar_type() == at::kLong || target.scalar_type() == at::kInt) && self.numel() > 0 &&
         (!IsGiven(weight) || weight->scalar_type() == self.scalar_type());
}

std::tuple<Tensor, Tensor> NllForward(const Tensor& self, const Tensor& target, const OptionalTensor& weight,
                                      int64_t reduction, int64_t ignore) {
  static const ops::Row& row = ops::RowOf("nll_loss_forward");
  CheckNll(self, target, weight);
  if (!IsNllServed(row, self, target, weight)) {
    return FallbackOf<at::_ops::nll_loss_forward>::Call(self, target, weight, reduction, ignore);
  }
  const NllShape shape(self);
  const bool each = reduction == at::Reduction::None && self.dim() == 2;
  const Tensor loss = MakeEmpty(each ? c10::IntArrayRef(shape.target) : c10::IntArrayRef(),
                                self.scalar_type(), self.device());
  const Tensor total = MakeEmpty({}, self.scalar_type(), self.device());
  const Tensor logp = Contiguous(self), index = Contiguous(target);
  Send(row,
       ops::NllLossCall<TensorRef>{.out = DescribeAs(loss, shape.Loss(reduction)),
                                   .total_weight = Describe(total),
                                   .self = DescribeAs(logp, shape.logp),
                                   .target = DescribeAs(index, shape.target),
                                   .weight = DescribeIf(weight),
                                   .attributes = {reduction, ignore}},
       self);
  return {loss, total};
}

Tensor NllBackward(const Tensor& gradient, const Tensor& self, const Tensor& target,
                   const OptionalTensor& weight, int64_t reduction, int64_t ignore,
                   const Tensor& total_weight) {
  static const ops::Row& row = ops::RowOf("nll_loss_backward");
  CheckNll(self, target, weight);
  if (!IsNllServed(row, self, target, weight)) {
    return FallbackOf<at::_ops::nll_loss_backward>::Call(gradient, self, target, weight, reduction, ignore,
                                                         total_weight);
  }
  const NllShape shape(self);
  Tensor out = MakeEmpty(self.sizes(), self.scalar_type(), self.device());
  const Tensor g = Contiguous(gradient), logp = Contiguous(self), index = Contiguous(target);
  Send(row,
       ops::NllLossBackwardCall<TensorRef>{.grad_input = DescribeAs(out, shape.logp),
                                           .grad_output = DescribeAs(g, shape.Loss(reduction)),
                                           .self = DescribeAs(logp, shape.logp),
                                           .target = DescribeAs(index, shape.target),
                                           .weight = DescribeIf(weight),
                                           .attributes = {reduction, ignore}},
       self);
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_softmax", XPUD_FN(Softmax));
  m.impl("_log_softmax", XPUD_FN(LogSoftmax));
  m.impl("_softmax_backward_data", XPUD_FN(SoftmaxBackward));
  m.impl("_log_softmax_backward_data", XPUD_FN(LogSoftmaxBackward));
  m.impl("native_layer_norm", XPUD_FN(LayerNorm));
  m.impl("native_layer_norm_backward", XPUD_FN(LayerNormBackward));
  m.impl("_fused_rms_norm", XPUD_FN(RmsNorm));
  m.impl("_fused_rms_norm_backward", XPUD_FN(RmsNormBackward));
  m.impl("embedding", XPUD_FN(Embedding));
  m.impl("embedding_dense_backward", XPUD_FN(EmbeddingBackward));
  m.impl("nll_loss_forward", XPUD_FN(NllForward));
  m.impl("nll_loss_backward", XPUD_FN(NllBackward));
}

}  // namespace
}  // namespace xpud::shim
