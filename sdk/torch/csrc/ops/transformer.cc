// The fast path of nn.MultiheadAttention and nn.TransformerEncoderLayer in eval mode, on the device.
// Attention is the fused op. Its scores are f32, so 16-bit inputs do not overflow.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"

#include <cmath>
#include <limits>

namespace xpud::shim {
namespace {

using at::Tensor;

// The kinds of mask, with PyTorch's numbers.
enum MaskType : int64_t { kSourceMask = 0, kPaddingMask = 1, kFullMask = 2 };

// Query, key and value as [batch, head, token, width].
struct Projected {
  Tensor query, key, value;
};

Tensor SplitHeads(const Tensor& tensor, int64_t heads) {
  return tensor.view({tensor.size(0), tensor.size(1), heads, tensor.size(2) / heads}).transpose(1, 2);
}

Projected Project(const Tensor& query, const Tensor& key, const Tensor& value, int64_t heads,
                  const Tensor& weight, const Tensor& bias) {
  std::vector<Tensor> parts;
  if (key.is_same(query) && value.is_same(query)) {
    parts = at::linear(query, weight, bias).chunk(3, 2);
  } else {
    const auto weights = weight.chunk(3, 0), biases = bias.chunk(3, 0);
    const std::array<Tensor, 3> inputs = {query, key, value};
    for (size_t i = 0; i < inputs.size(); ++i) parts.push_back(at::linear(inputs[i], weights[i], biases[i]));
  }
  return {SplitHeads(parts[0], heads), SplitHeads(parts[1], heads), SplitHeads(parts[2], heads)};
}

// Returns which tokens are masked, as [batch or 1, head or 1, token or 1, token].
Tensor Hidden(const Tensor& mask, std::optional<int64_t> type, const Tensor& query) {
  TORCH_CHECK(type.has_value(), "Mask Type should be defined");
  TORCH_CHECK(*type >= kSourceMask && *type <= kFullMask,
              "Mask Type should be 0 (src_mask) or 1 (src_key_padding_mask), or 2 (default_mask), and is ",
              *type);
  Tensor hidden = mask.to(at::kBool);
  const int64_t batch = query.size(0), heads = query.size(1), tokens = query.size(2);
  if (*type == kPaddingMask && mask.dim() == 2) {
    TORCH_CHECK(mask.size(0) == batch && mask.size(1) == tokens, "src_key_padding_mask of size ",
                mask.sizes(), " should be [", batch, ", ", tokens, "]");
    return hidden.view({batch, 1, 1, tokens});
  }
  if (*type == kSourceMask && mask.dim() == 2) {
    TORCH_CHECK(mask.size(0) == tokens && mask.size(1) == tokens, "src_mask of size ", mask.sizes(),
                " should be [", tokens, ", ", tokens, "]");
    return hidden.view({1, 1, tokens, tokens});
  }
  TORCH_CHECK(mask.sizes() == c10::IntArrayRef({batch, heads, tokens, tokens}), "mask of size ", mask.sizes(),
              " should be [", batch, ", ", heads, ", ", tokens, ", ", tokens, "]");
  return hidden;
}

// Attention without its weights. The result is nan for a token whose keys are all masked, as on PyTorch's CPU
// and CUDA.
Tensor Attend(const Projected& heads, const Tensor& hidden) {
  if (!hidden.defined()) return at::scaled_dot_product_attention(heads.query, heads.key, heads.value);
  const Tensor visible = hidden.logical_not();
  return at::scaled_dot_product_attention(heads.query, heads.key, heads.value, visible)
      .masked_fill(hidden.all(-1, /*keepdim=*/true), std::numeric_limits<double>::quiet_NaN());
}

// softmax(scale Q K'), computed in f32 for 16-bit dtypes.
Tensor Weights(const Projected& heads, const Tensor& hidden) {
  const at::ScalarType type = heads.query.scalar_type();
  const at::ScalarType compute = c10::isReducedFloatingType(type) ? at::kFloat : type;
  const double scale = 1.0 / std::sqrt(static_cast<double>(heads.query.size(3)));
  Tensor scores =
      at::matmul(heads.query.to(compute).mul(scale), heads.key.to(compute).transpose(-2, -1)).to(compute);
  if (hidden.defined()) scores.masked_fill_(hidden, -std::numeric_limits<double>::infinity());
  return at::softmax(scores, -1).to(type);
}

void CheckAttention(const Tensor& query, const Tensor& key, const Tensor& value, int64_t width, int64_t heads,
                    const Tensor& weight, const Tensor& bias) {
  TORCH_CHECK(query.dim() == 3, "expected 3-D `query`, got ", query.dim(), "-D tensor");
  TORCH_CHECK(query.size(2) == width, "passed-in embed_dim ", width, " didn't match last dim of query ",
              query.size(2));
  TORCH_CHECK(query.sizes() == key.sizes() && key.sizes() == value.sizes(),
              "expected `query`/`key`/`value` shapes to match");
  TORCH_CHECK(weight.sizes() == c10::IntArrayRef({3 * width, width}), "expected `qkv_weight` of size [",
              3 * width, ", ", width, "], got ", weight.sizes());
  TORCH_CHECK(bias.dim() == 1 && bias.size(0) == 3 * width, "expected `qkv_bias` of size [", 3 * width,
              "], got ", bias.sizes());
  TORCH_CHECK(width % heads == 0, "`embed_dim` must divide evenly by `num_heads`");
}

// Returns the projected result, and the weights (or their mean over the heads) if requested.
std::tuple<Tensor, Tensor> MultiHeadAttention(const Tensor& query, const Tensor& key, const Tensor& value,
                                              int64_t width, int64_t heads, const Tensor& qkv_weight,
                                              const Tensor& qkv_bias, const Tensor& proj_weight,
                                              const Tensor& proj_bias, const OptionalTensor& mask,
                                              bool need_weights, bool average_weights,
                                              std::optional<int64_t> mask_type) {
  CheckAttention(query, key, value, width, heads, qkv_weight, qkv_bias);
  if (query.numel() == 0) return {at::empty_like(query), Tensor()};
  const Projected projected = Project(query, key, value, heads, qkv_weight, qkv_bias);
  const Tensor hidden =
      mask.has_value() && mask->defined() ? Hidden(*mask, mask_type, projected.query) : Tensor();
  Tensor weights, attended;
  if (need_weights) {
    weights = Weights(projected, hidden);
    attended = at::matmul(weights, projected.value);
  } else {
    attended = Attend(projected, hidden);
  }
  const Tensor joined = attended.transpose(1, 2).reshape({query.size(0), query.size(1), width});
  if (need_weights && average_weights) weights = weights.mean(1);
  return {at::linear(joined, proj_weight, proj_bias), weights};
}

// Vaswani et al. 2017; norm_first: Xiong et al. 2020.
Tensor EncoderLayer(const Tensor& src, int64_t width, int64_t heads, const Tensor& qkv_weight,
                    const Tensor& qkv_bias, const Tensor& proj_weight, const Tensor& proj_bias, bool use_gelu,
                    bool norm_first, double eps, const Tensor& norm_weight_1, const Tensor& norm_bias_1,
                    const Tensor& norm_weight_2, const Tensor& norm_bias_2, const Tensor& ffn_weight_1,
                    const Tensor& ffn_bias_1, const Tensor& ffn_weight_2, const Tensor& ffn_bias_2,
                    const OptionalTensor& mask, std::optional<int64_t> mask_type) {
  if (src.numel() == 0) return src.clone();
  const auto norm1 = [&](const Tensor& x) {
    return at::layer_norm(x, width, norm_weight_1, norm_bias_1, eps);
  };
  const auto norm2 = [&](const Tensor& x) {
    return at::layer_norm(x, width, norm_weight_2, norm_bias_2, eps);
  };
  const auto attend = [&](const Tensor& x) {
    return std::get<0>(MultiHeadAttention(x, x, x, width, heads, qkv_weight, qkv_bias, proj_weight, proj_bias,
                                          mask, /*need_weights=*/false, /*average_weights=*/true, mask_type));
  };
  const auto feed_forward = [&](const Tensor& x) {
    const Tensor inner = at::linear(x, ffn_weight_1, ffn_bias_1);
    return at::linear(use_gelu ? at::gelu(inner) : at::relu(inner), ffn_weight_2, ffn_bias_2);
  };
  if (norm_first) {
    const Tensor x = at::add(src, attend(norm1(src)));
    return at::add(x, feed_forward(norm2(x)));
  }
  const Tensor x = norm1(at::add(src, attend(src)));
  return norm2(at::add(x, feed_forward(x)));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_native_multi_head_attention", XPUD_FN(MultiHeadAttention));
  m.impl("_transformer_encoder_layer_fwd", XPUD_FN(EncoderLayer));
}

}  // namespace
}  // namespace xpud::shim
