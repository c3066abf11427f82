// Nested tensors of layout torch.strided: one buffer, and on the host the sizes, strides and offsets of its
// parts. (Those of layout torch.jagged are implemented in Python with ordinary operators.)
//
// Most of PyTorch's kernels for nested tensors call ordinary operators on the buffer. PyTorch registers these
// for HPU too, and they are reused from there. The other kernels read memory by address, so they are
// implemented here.
#include <ATen/ATen.h>
#include <ATen/NestedTensorImpl.h>
#include <ATen/SDPBackend.h>
#include <ATen/WrapDimUtils.h>
#include <torch/library.h>

#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace xpud::shim {
namespace {

using at::Tensor;
using at::native::get_nested_tensor_impl;
using at::native::NestedTensorImpl;

// ---- PyTorch's kernels ----

// Kernels registered for the CPU only that do not read the buffer's memory either.
constexpr std::array<std::string_view, 3> kSharedByCpu = {"aten::bmm", "aten::to_padded_tensor",
                                                          "aten::_nested_tensor_storage_offsets"};

// Returns the key whose kernel also works for the device's nested tensors.
std::optional<c10::DispatchKey> SharedKey(const c10::OperatorHandle& op) {
  using Key = c10::DispatchKey;
  const std::string& name = op.operator_name().name;
  if (op.hasKernelForDispatchKey(Key::NestedTensorHPU)) return Key::NestedTensorHPU;
  if (std::ranges::find(kSharedByCpu, name) != kSharedByCpu.end() &&
      op.hasKernelForDispatchKey(Key::NestedTensorCPU)) {
    return Key::NestedTensorCPU;
  }
  return std::nullopt;
}

void CallShared(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(*SharedKey(op)), stack);
}

void RefuseNested(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "xpud has no ", toString(op.operator_name()),
      " of nested tensors of layout torch.strided: use layout=torch.jagged, to_padded_tensor(), or a nested "
      "tensor on the CPU");
}

// ---- parts ----

Tensor Wrap(const Tensor& buffer, const Tensor& sizes) {
  return at::detail::make_tensor<NestedTensorImpl>(buffer.reshape({-1}), sizes);
}

const Tensor& SizesOf(const Tensor& nested) { return get_nested_tensor_impl(nested)->get_nested_sizes(); }

Tensor BufferOf(const Tensor& nested) { return get_nested_tensor_impl(nested)->get_buffer(); }

c10::IntArrayRef RowOf(const Tensor& sizes, int64_t part) {
  return {sizes.const_data_ptr<int64_t>() + part * sizes.size(1), static_cast<size_t>(sizes.size(1))};
}

// Returns true if the parts differ only in their first dimension, so that all rows have one width. REQUIRES:
// each part of `sizes` has dimensions.
bool IsRagged(const Tensor& sizes) {
  if (sizes.dim() != 2 || sizes.size(0) == 0 || sizes.size(1) == 0) return false;
  for (int64_t part = 1; part < sizes.size(0); ++part) {
    if (RowOf(sizes, part).slice(1) != RowOf(sizes, 0).slice(1)) return false;
  }
  return c10::multiply_integers(RowOf(sizes, 0).slice(1)) > 0;
}

// Returns, for each row of the buffer, its row in a [parts, `tokens`, ...] tensor.
Tensor RowsInPadded(const Tensor& sizes, int64_t tokens) {
  std::vector<int64_t> rows;
  for (int64_t part = 0; part < sizes.size(0); ++part) {
    for (int64_t token = 0; token < RowOf(sizes, part)[0]; ++token) rows.push_back(part * tokens + token);
  }
  return at::tensor(rows, at::kLong);
}

// Checks that a nested tensor's sizes fit into a padded tensor.
void CheckFits(const Tensor& sizes, const Tensor& padded) {
  TORCH_CHECK(sizes.dim() == 2 && sizes.size(0) == padded.size(0) && sizes.size(1) == padded.dim() - 1,
              "_nested_from_padded: sizes of shape ", sizes.sizes(), " do not fit a tensor of shape ",
              padded.sizes());
  for (int64_t part = 0; part < sizes.size(0); ++part) {
    for (int64_t d = 0; d < sizes.size(1); ++d) {
      TORCH_CHECK(RowOf(sizes, part)[d] <= padded.size(d + 1), "_nested_from_padded: part ", part,
                  " of size ", RowOf(sizes, part), " is larger than ", padded.sizes().slice(1));
    }
  }
}

// ---- from and to dense tensors ----

Tensor FromPadded(const Tensor& padded, const Tensor& nested_sizes, bool transform_0213) {
  const Tensor source = transform_0213
                            ? padded.permute({0, 2, 1, 3})
                                  .reshape({padded.size(0), padded.size(2), padded.size(1) * padded.size(3)})
                            : padded;
  const Tensor sizes = nested_sizes.to(at::kCPU, at::kLong).contiguous();
  CheckFits(sizes, source);
  if (IsRagged(sizes) && RowOf(sizes, 0).slice(1) == source.sizes().slice(2)) {
    const Tensor rows = source.reshape({source.size(0) * source.size(1), -1});
    return Wrap(rows.index_select(0, RowsInPadded(sizes, source.size(1)).to(padded.device())), sizes);
  }
  std::vector<Tensor> parts;
  for (int64_t part = 0; part < sizes.size(0); ++part) {
    Tensor kept = source.select(0, part);
    for (int64_t d = 0; d < sizes.size(1); ++d) kept = kept.narrow(d, 0, RowOf(sizes, part)[d]);
    parts.push_back(kept.reshape({-1}));
  }
  return Wrap(parts.empty() ? at::empty({0}, padded.options()) : at::cat(parts), sizes);
}

// How many tokens of each sequence a mask keeps, and whether they are the first ones. Waits for the mask.
struct KeptTokens {
  KeptTokens(const Tensor& t, const Tensor& mask) {
    TORCH_CHECK(mask.scalar_type() == at::kBool, "Expected mask to be of ScalarType Bool, but got ",
                mask.scalar_type(), " instead.");
    TORCH_CHECK(mask.dim() == 2, "Padding mask should be 2D");
    TORCH_CHECK(t.dim() == 3, "Input should be a 3D tensor, N * L * D");
    TORCH_CHECK(t.sizes().slice(0, 2) == mask.sizes(), "Mask size should match input size");
    const Tensor kept = mask.cpu();
    counts = kept.sum(1);
    first = at::equal(kept, at::arange(mask.size(1)).unsqueeze(0).lt(counts.unsqueeze(1)));
  }
  Tensor counts;
  bool first;
};

Tensor FromMask(const Tensor& t, const Tensor& mask, bool mask_check) {
  const KeptTokens kept(t, mask);
  TORCH_CHECK(!mask_check || kept.first, "Mask must be left-aligned without gaps");
  return FromPadded(t, at::stack({kept.counts, at::full_like(kept.counts, t.size(2))}, 1), false);
}

bool IsLeftAligned(const Tensor& t, const Tensor& mask) { return KeptTokens(t, mask).first; }

Tensor ViewOfBuffer(const Tensor& buffer, const Tensor& sizes, const Tensor& strides, const Tensor& offsets) {
  TORCH_CHECK(!buffer.is_nested(), "_nested_view_from_buffer: the buffer is a nested tensor already");
  return at::detail::make_tensor<NestedTensorImpl>(c10::TensorImpl::VIEW, buffer, sizes, strides, offsets);
}

// ---- layers ----

// Returns the buffer as rows of the normalized shape.
Tensor NormRows(const Tensor& nested, c10::IntArrayRef normalized) {
  const Tensor& sizes = SizesOf(nested);
  const auto depth = static_cast<int64_t>(normalized.size());
  for (int64_t part = 0; part < sizes.size(0); ++part) {
    TORCH_CHECK(
        depth >= 1 && depth <= sizes.size(1) && RowOf(sizes, part).slice(sizes.size(1) - depth) == normalized,
        "Given normalized_shape=", normalized, ", expected a nested tensor of parts [*, ", normalized,
        "], but got one of size ", RowOf(sizes, part));
  }
  std::vector<int64_t> rows = {-1};
  rows.insert(rows.end(), normalized.begin(), normalized.end());
  return BufferOf(nested).view(rows);
}

std::tuple<Tensor, Tensor, Tensor> LayerNorm(const Tensor& input, c10::IntArrayRef normalized,
                                             const OptionalTensor& weight, const OptionalTensor& bias,
                                             double eps) {
  const auto [out, mean, rstd] =
      at::native_layer_norm(NormRows(input, normalized), normalized, weight, bias, eps);
  return {Wrap(out, SizesOf(input)), mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> LayerNormBackward(const Tensor& gradient, const Tensor& input,
                                                     c10::IntArrayRef normalized, const Tensor& mean,
                                                     const Tensor& rstd, const OptionalTensor& weight,
                                                     const OptionalTensor& bias, std::array<bool, 3> mask) {
  const auto [dx, dw, db] =
      at::native_layer_norm_backward(NormRows(gradient.contiguous(), normalized), NormRows(input, normalized),
                                     normalized, mean, rstd, weight, bias, mask);
  return {dx.defined() ? Wrap(dx, SizesOf(input)) : Tensor(), dw, db};
}

// Sums over the last dimension, which is kept, as on the CPU.
Tensor Sum(const Tensor& self, at::OptionalIntArrayRef dims, bool keepdim,
           std::optional<at::ScalarType> type) {
  TORCH_CHECK(
      dims.has_value() && dims->size() == 1 && at::maybe_wrap_dim((*dims)[0], self.dim()) == self.dim() - 1,
      "NestedTensor can only be reduced across the last dimension for now");
  TORCH_CHECK(keepdim, "NestedTensor always requires keepdim=True for now.");
  TORCH_CHECK(!type.has_value(), "NestedTensor does not support dtype argument for now.");
  std::vector<Tensor> sums;
  for (const Tensor& part : self.unbind()) sums.push_back(part.sum(-1).reshape({-1}));
  if (sums.empty()) return self;
  const Tensor sizes = SizesOf(self).clone();
  sizes.select(1, -1).fill_(1);
  return Wrap(at::cat(sums), sizes);
}

Tensor SumBackward(const Tensor& gradient, const Tensor& self, at::OptionalIntArrayRef /*dims*/,
                   bool /*keepdim*/) {
  const auto gradients = gradient.unbind();
  std::vector<Tensor> parts;
  for (size_t part = 0; part < gradients.size(); ++part) {
    const auto size = RowOf(SizesOf(self), static_cast<int64_t>(part));
    parts.push_back(gradients[part].expand(size).reshape({-1}));
  }
  return parts.empty() ? gradient : Wrap(at::cat(parts), SizesOf(self));
}

// ---- attention: by padded tensors ----

// A [parts, tokens, width] tensor, padded with zeros after each part, and a mask of the padding.
struct Padded {
  explicit Padded(const Tensor& nested) {
    const Tensor& sizes = SizesOf(nested);
    TORCH_CHECK(sizes.dim() == 2 && sizes.size(1) == 2 && IsRagged(sizes),
                "expected a nested tensor of [batch, tokens, width] in which only tokens varies");
    const Tensor lengths = sizes.select(1, 0);
    const int64_t parts = sizes.size(0), width = RowOf(sizes, 0)[1], tokens = lengths.max().item<int64_t>();
    const Tensor rows = BufferOf(nested).view({-1, width});
    // Each row of the padded tensor is a row of the buffer, or the row of zeros after them.
    const Tensor source = at::full({parts * tokens}, rows.size(0), at::kLong);
    source.index_copy_(0, RowsInPadded(sizes, tokens), at::arange(rows.size(0)));
    value = at::cat({rows, at::zeros({1, width}, rows.options())})
                .index_select(0, source.to(nested.device()))
                .view({parts, tokens, width});
    hidden = at::arange(tokens).unsqueeze(0).ge(lengths.unsqueeze(1)).to(nested.device());
  }
  Tensor value, hidden;
};

constexpr int64_t kPaddingMask = 1;

std::tuple<Tensor, Tensor> MultiHeadAttention(const Tensor& query, const Tensor& key, const Tensor& value,
                                              int64_t width, int64_t heads, const Tensor& qkv_weight,
                                              const Tensor& qkv_bias, const Tensor& proj_weight,
                                              const Tensor& proj_bias, const OptionalTensor& mask,
                                              bool need_weights, bool average_weights,
                                              std::optional<int64_t> /*mask_type*/) {
  TORCH_CHECK(!mask.has_value() || !mask->defined(), "NestedTensor with mask is not supported yet");
  TORCH_CHECK(query.is_nested() && key.is_nested() && value.is_nested(),
              "expected `query`, `key` and `value` to be nested tensors");
  const Padded q(query);
  const Tensor k = key.is_same(query) ? q.value : Padded(key).value;
  const Tensor v = value.is_same(query) ? q.value : value.is_same(key) ? k : Padded(value).value;
  auto [out, weights] =
      at::_native_multi_head_attention(q.value, k, v, width, heads, qkv_weight, qkv_bias, proj_weight,
                                       proj_bias, q.hidden, need_weights, average_weights, kPaddingMask);
  if (weights.defined()) {  // padding tokens have no weights
    const Tensor hidden = q.hidden.unsqueeze(-1);
    weights.masked_fill_(weights.dim() == 4 ? hidden.unsqueeze(1) : hidden, 0);
  }
  return {FromPadded(out, SizesOf(query), false), weights};
}

Tensor EncoderLayer(const Tensor& src, int64_t width, int64_t heads, const Tensor& qkv_weight,
                    const Tensor& qkv_bias, const Tensor& proj_weight, const Tensor& proj_bias, bool use_gelu,
                    bool norm_first, double eps, const Tensor& norm_weight_1, const Tensor& norm_bias_1,
                    const Tensor& norm_weight_2, const Tensor& norm_bias_2, const Tensor& ffn_weight_1,
                    const Tensor& ffn_bias_1, const Tensor& ffn_weight_2, const Tensor& ffn_bias_2,
                    const OptionalTensor& mask, std::optional<int64_t> /*mask_type*/) {
  TORCH_CHECK(!mask.has_value() || !mask->defined(), "NestedTensor with mask is not supported yet");
  if (src.numel() == 0) return src.clone();
  const Padded padded(src);
  const Tensor out = at::_transformer_encoder_layer_fwd(
      padded.value, width, heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first, eps,
      norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2, ffn_weight_1, ffn_bias_1, ffn_weight_2,
      ffn_bias_2, padded.hidden, kPaddingMask);
  return FromPadded(out, SizesOf(src), false);
}

int64_t ChooseAttention(const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&, double, bool,
                        std::optional<double>, bool) {
  return static_cast<int64_t>(at::SDPBackend::math);
}

bool IsPinned(const Tensor&, std::optional<c10::Device>) { return false; }

TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&RefuseNested>());
}

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  m.impl("native_layer_norm", XPUD_FN(LayerNorm));
  m.impl("native_layer_norm_backward", XPUD_FN(LayerNormBackward));
  m.impl("sum.dim_IntList", XPUD_FN(Sum));
  m.impl("_nested_sum_backward", XPUD_FN(SumBackward));
  m.impl("_native_multi_head_attention", XPUD_FN(MultiHeadAttention));
  m.impl("_transformer_encoder_layer_fwd", XPUD_FN(EncoderLayer));
  m.impl("_fused_sdp_choice", XPUD_FN(ChooseAttention));
  m.impl("is_pinned", XPUD_FN(IsPinned));
  // Registered one by one, because a composite kernel precedes a backend's fallback.
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (!op.has_value() || !op->hasSchema() || !name.getNamespace().has_value() ||
        *name.getNamespace() != "aten" ||
        op->hasKernelForDispatchKey(c10::DispatchKey::NestedTensorPrivateUse1) ||
        !SharedKey(*op).has_value()) {
      continue;
    }
    m.impl(toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&CallShared>());
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_nested_from_padded", XPUD_FN(FromPadded));
  m.impl("_nested_tensor_from_mask", XPUD_FN(FromMask));
  m.impl("_nested_tensor_from_mask_left_aligned", XPUD_FN(IsLeftAligned));
  m.impl("_nested_view_from_buffer", XPUD_FN(ViewOfBuffer));
}

}  // namespace
}  // namespace xpud::shim
