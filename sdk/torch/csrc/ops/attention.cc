// Scaled dot product attention. Forward and backward are one command each, without a matrix of scores.
#include <ATen/ATen.h>
#include <ATen/SDPBackend.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "proto/ops/families/attention.h"
#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/call/list_command.h"
#include "sdk/torch/csrc/call/operand.h"
#include "sdk/torch/csrc/runtime/generator.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {

const ops::Row& AttentionRow() {
  static const ops::Row& row = ops::RowOf("_scaled_dot_product_fused_attention_overrideable");
  return row;
}

// With dropout, and for f64, whose gradients need a logsumexp in f64.
static const ops::Row& TrainingRow() {
  static const ops::Row& row = ops::RowOf("xpud::training_attention");
  return row;
}
static const ops::Row& BackwardRow() {
  static const ops::Row& row = ops::RowOf("xpud::attention_backward");
  return row;
}

static bool NeedsGradient(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  return at::GradMode::is_enabled() &&
         (query.requires_grad() || key.requires_grad() || value.requires_grad());
}

// Returns true if the daemon has the rows that training or dropout needs. Before the connection (fake
// tensors) the daemon counts as current.
static bool CanTrain() {
  return !Runtime::IsConnected() || (IsKnown(TrainingRow()) && IsKnown(BackwardRow()));
}

// Returns true within vmap. PyTorch has no rule that batches the fused operator. A tensor within torch.func's
// grad or jvp may hide a batch, so it counts as one.
static bool IsBatched(const at::Tensor& tensor) {
  return tensor.key_set().has_any(
      c10::DispatchKeySet({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper}));
}

int64_t ChooseAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const std::optional<at::Tensor>& mask, double dropout, bool /*is_causal*/,
                        std::optional<double> /*scale*/, bool /*enable_gqa*/) {
  const bool trains = dropout != 0 || NeedsGradient(query, key, value);
  const bool batched = IsBatched(query) || IsBatched(key) || IsBatched(value);
  const bool fused =
      !batched && !query.is_nested() && !key.is_nested() && query.dim() == 4 && key.dim() == 4 &&
      value.dim() == 4 && query.sym_numel() > 0 && key.sym_numel() > 0 && value.sym_numel() > 0 &&
      query.sym_size(0) == key.sym_size(0) && query.sym_size(0) == value.sym_size(0) &&
      key.sym_size(1) == value.sym_size(1) && query.sym_size(1) % key.sym_size(1) == 0 &&
      query.scalar_type() == key.scalar_type() && query.scalar_type() == value.scalar_type() &&
      IsSupported(query.scalar_type(), AttentionRow().dtypes) &&
      (!mask.has_value() || !mask->defined() || !mask->requires_grad()) && (!trains || CanTrain());
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

Tensor ExpandMask(const std::optional<Tensor>& bias, const Tensor& query, const Tensor& key) {
  if (!bias.has_value() || !bias->defined()) return Tensor();
  return bias->expand({query.size(0), query.size(1), query.size(2), key.size(2)});
}
TensorRef DescribeMask(const Tensor& mask) { return mask.defined() ? Describe(mask) : TensorRef{}; }

Tensor ScalarOf(int64_t value) {
  Tensor scalar = at::empty({}, at::kLong);
  *scalar.mutable_data_ptr<int64_t>() = value;
  return scalar;
}

bool IsEmpty(const Tensor& query, const Tensor& key, const Tensor& value) {
  return query.numel() == 0 || key.numel() == 0 || value.numel() == 0;
}

// Reserves a random number for each weight.
PhiloxState NextOfWeights(const Tensor& query, const Tensor& key) {
  const auto weights = static_cast<uint64_t>(query.size(0) * query.size(1) * query.size(2) * key.size(2));
  return NextPhilox(std::nullopt, query.device().index(), (weights + 3) / 4);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor> Attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& bias,
    double dropout, bool is_causal, bool /*return_debug_mask*/, std::optional<double> scale) {
  TORCH_CHECK(dropout >= 0 && dropout <= 1, "dropout probability has to be between 0 and 1, but got ",
              dropout);
  const bool trains =
      !IsEmpty(query, key, value) && (dropout > 0 || (query.scalar_type() == at::kDouble && CanTrain()));
  const bool wide = trains && query.scalar_type() == at::kDouble;
  const Tensor out = EmptyLikeQuery(query, value.size(3));
  const Tensor logsumexp = MakeEmpty({query.size(0), query.size(1), query.size(2)},
                                     wide ? at::kDouble : at::kFloat, query.device());
  const Tensor mask = ExpandMask(bias, query, key);
  const PhiloxState state = dropout > 0 ? NextOfWeights(query, key) : PhiloxState{};
  if (trains) {
    Send(TrainingRow(),
         ops::TrainingAttentionCall<TensorRef>{
             .out = Describe(out),
             .logsumexp = Describe(logsumexp),
             .query = Describe(query),
             .key = Describe(key),
             .value = Describe(value),
             .mask = DescribeMask(mask),
             .attributes = {ScaleOf(query, scale), is_causal, dropout, state.seed, state.offset}},
         query);
  } else {
    Send(AttentionRow(),
         ops::AttentionCall<TensorRef>{.out = Describe(out),
                                       .logsumexp = Describe(logsumexp),
                                       .query = Describe(query),
                                       .key = Describe(key),
                                       .value = Describe(value),
                                       .mask = DescribeMask(mask),
                                       .scale = ScaleOf(query, scale),
                                       .is_causal = is_causal},
         query);
  }
  return {out,
          logsumexp,
          Tensor(),
          Tensor(),
          query.size(2),
          key.size(2),
          ScalarOf(state.seed),
          ScalarOf(state.offset),
          Tensor()};
}

// Returns a tensor whose rows kernels can copy: not expanded, as the gradient of `sum` is.
Tensor WithRows(const Tensor& t) {
  bool expanded = t.stride(-1) != 1;
  for (int64_t i = 0; i < t.dim(); ++i) expanded |= t.size(i) > 1 && t.stride(i) == 0;
  return expanded ? t.contiguous() : t;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> AttentionBackward(
    const Tensor& its_gradient, const Tensor& query, const Tensor& key, const Tensor& value,
    const Tensor& bias, std::array<bool, 4> wanted, const Tensor& out, const Tensor& logsumexp,
    const Tensor& /*cum_seq_q*/, const Tensor& /*cum_seq_k*/, int64_t /*max_q*/, int64_t /*max_k*/,
    double dropout, bool is_causal, const Tensor& seed, const Tensor& offset, std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(!(wanted[3] && bias.defined()),
                              "XPUD: fused attention has no gradient of its mask");
  if (!its_gradient.defined()) return {};
  const Tensor gradient = WithRows(its_gradient);
  if (IsEmpty(query, key, value))
    return {at::zeros_like(query), at::zeros_like(key), at::zeros_like(value), Tensor()};
  const PhiloxState state =
      dropout > 0 ? PhiloxState{seed.item<int64_t>(), offset.item<int64_t>()} : PhiloxState{};
  const Tensor of_query = at::empty_like(query), of_key = at::empty_like(key),
               of_value = at::empty_like(value);
  const Tensor mask = ExpandMask(bias, query, key);
  Send(BackwardRow(),
       ops::AttentionBackwardCall<TensorRef>{
           .query_gradient = Describe(of_query),
           .key_gradient = Describe(of_key),
           .value_gradient = Describe(of_value),
           .gradient = Describe(gradient),
           .query = Describe(query),
           .key = Describe(key),
           .value = Describe(value),
           .out = Describe(out),
           .logsumexp = Describe(logsumexp),
           .mask = DescribeMask(mask),
           .attributes = {ScaleOf(query, scale), is_causal, dropout, state.seed, state.offset}},
       query);
  return {of_query, of_key, of_value, Tensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_scaled_dot_product_fused_attention_overrideable", XPUD_FN(Attention));
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", XPUD_FN(AttentionBackward));
}

}  // namespace
}  // namespace xpud::shim

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &xpud::shim::ChooseAttention)
}  // namespace at::native
