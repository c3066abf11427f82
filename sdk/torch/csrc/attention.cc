// Scaled dot product attention. Forward is one fused op; backward is computed by matrix products from the
// saved logsumexp.
#include <ATen/ATen.h>
#include <ATen/SDPBackend.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sdk/torch/csrc/factories.h"
#include "sdk/torch/csrc/operand.h"

namespace xpud::shim {

const ops::Row& AttentionRow() {
  static const ops::Row& row = ops::RowOf("_scaled_dot_product_fused_attention_overrideable");
  return row;
}

// The fused op keeps its logsumexp in f32, which is too imprecise for gradients in f64.
static bool NeedsExactGradient(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  return query.scalar_type() == at::kDouble && at::GradMode::is_enabled() &&
         (query.requires_grad() || key.requires_grad() || value.requires_grad());
}

int64_t ChooseAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const std::optional<at::Tensor>& mask, double dropout, bool /*is_causal*/,
                        std::optional<double> /*scale*/, bool /*enable_gqa*/) {
  const bool fused = dropout == 0 && !query.is_nested() && !key.is_nested() && query.dim() == 4 &&
                     key.dim() == 4 && value.dim() == 4 && query.sym_numel() > 0 && key.sym_numel() > 0 &&
                     value.sym_numel() > 0 && query.sym_size(0) == key.sym_size(0) &&
                     query.sym_size(0) == value.sym_size(0) && key.sym_size(1) == value.sym_size(1) &&
                     query.sym_size(1) % key.sym_size(1) == 0 && query.scalar_type() == key.scalar_type() &&
                     query.scalar_type() == value.scalar_type() &&
                     IsSupported(query.scalar_type(), AttentionRow().dtypes) &&
                     (!mask.has_value() || !mask->defined() || !mask->requires_grad()) &&
                     !NeedsExactGradient(query, key, value);
  return static_cast<int64_t>(fused ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

namespace {

using at::Tensor;

// Keeps the query's order of dimensions, as the meta kernel does.
Tensor EmptyLikeQuery(const Tensor& query, int64_t width) {
  if (query.size(3) == width) return at::empty_like(query);
  std::array<int64_t, 4> order = {0, 1, 2, 3};
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return query.stride(a) > query.stride(b); });
  const std::array<int64_t, 4> sizes = {query.size(0), query.size(1), query.size(2), width};
  std::array<int64_t, 4> strides{};
  int64_t stride = 1;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    strides[*d] = stride;
    stride *= sizes[*d];
  }
  return at::empty_strided(sizes, strides, query.options());
}

double ScaleOf(const Tensor& query, std::optional<double> scale) {
  return scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(3))));
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor> Attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& bias,
    double dropout, bool is_causal, bool /*return_debug_mask*/, std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(dropout == 0, "XPUD: fused attention has no dropout");
  const Tensor out = EmptyLikeQuery(query, value.size(3));
  const Tensor logsumexp =
      MakeEmpty({query.size(0), query.size(1), query.size(2)}, at::kFloat, query.device());
  Tensor mask;
  if (bias.has_value() && bias->defined())
    mask = bias->expand({query.size(0), query.size(1), query.size(2), key.size(2)});
  const std::array<TensorRef, 2> outputs = {Describe(out), Describe(logsumexp)};
  const std::array<TensorRef, 4> inputs = {Describe(query), Describe(key), Describe(value),
                                           mask.defined() ? Describe(mask) : TensorRef{}};
  const std::array<ops::Number, 2> attributes = {ops::Number::Real(ScaleOf(query, scale)),
                                                 ops::Number::Integer(is_causal)};
  Execute({.row = &AttentionRow(),
           .compute = outputs[0].dtype,
           .outputs = outputs,
           .inputs = inputs,
           .attributes = attributes},
          DeviceIndexOf(query));
  // Without dropout, seed and offset are never read.
  return {out,
          logsumexp,
          Tensor(),
          Tensor(),
          query.size(2),
          key.size(2),
          at::empty({}, at::kLong),
          at::empty({}, at::kLong),
          Tensor()};
}

// Repeats each head: [B,Hk,T,D] to [B,H,T,D].
Tensor RepeatHeads(const Tensor& tensor, int64_t heads) {
  return tensor.size(1) == heads ? tensor : tensor.repeat_interleave(heads / tensor.size(1), 1);
}
Tensor SumHeads(const Tensor& gradient, int64_t heads) {
  if (gradient.size(1) == heads) return gradient;
  return gradient
      .view({gradient.size(0), heads, gradient.size(1) / heads, gradient.size(2), gradient.size(3)})
      .sum(2);
}

// P = exp(scale QK' + bias - logsumexp); dV = P'dO; dS = P (dO V' - rowsum(dO O)); dQ = scale dS K; dK =
// scale dS'Q (Dao et al. 2022).
std::tuple<Tensor, Tensor, Tensor, Tensor> AttentionBackward(
    const Tensor& gradient, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias,
    std::array<bool, 4> mask, const Tensor& out, const Tensor& logsumexp, const Tensor& /*cum_seq_q*/,
    const Tensor& /*cum_seq_k*/, int64_t /*max_q*/, int64_t /*max_k*/, double /*dropout*/, bool is_causal,
    const Tensor& /*seed*/, const Tensor& /*offset*/, std::optional<double> scale) {
  const int64_t heads = query.size(1);
  const double factor = ScaleOf(query, scale);
  const at::ScalarType type = query.scalar_type();
  const Tensor k = RepeatHeads(key, heads), v = RepeatHeads(value, heads);
  // 16-bit scores would lose precision in the gradients, so everything except the operands of the last
  // products is f32.
  const auto exact = [&](const Tensor& tensor) { return tensor.to(logsumexp.scalar_type()); };
  Tensor scores = at::matmul(exact(query), exact(k).transpose(-2, -1)).mul_(factor);
  if (bias.defined() && bias.scalar_type() == at::kBool)
    scores.masked_fill_(bias.logical_not(), -INFINITY);
  else if (bias.defined())
    scores.add_(bias);
  if (is_causal) {
    const auto options = query.options().dtype(at::kLong);
    const Tensor hidden =
        at::arange(key.size(2), options).unsqueeze(0).gt(at::arange(query.size(2), options).unsqueeze(1));
    scores.masked_fill_(hidden, -INFINITY);
  }
  const Tensor weights = scores.sub_(logsumexp.unsqueeze(-1)).exp_();
  const Tensor dv = at::matmul(weights.to(type).transpose(-2, -1), gradient);
  const Tensor delta = exact(gradient).mul(out).sum(-1, /*keepdim=*/true);
  const Tensor ds = at::matmul(exact(gradient), exact(v).transpose(-2, -1)).sub_(delta).mul_(weights);
  const Tensor ds_typed = ds.to(type);
  Tensor dq = at::matmul(ds_typed, k).mul_(factor);
  Tensor dk = at::matmul(ds_typed.transpose(-2, -1), query).mul_(factor);
  Tensor dbias = mask[3] && bias.defined() ? ds_typed.sum_to_size(bias.sizes()) : Tensor();
  return {dq, SumHeads(dk, key.size(1)), SumHeads(dv, value.size(1)), dbias};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(Attention));
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(AttentionBackward));
}

}  // namespace
}  // namespace xpud::shim

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &xpud::shim::ChooseAttention)
}  // namespace at::native
