// Weight normalisation (Salimans and Kingma 2016): w = g v / |v|, with a norm for each slice along the first
// or the last dimension; and its gradients. torch.nn.utils.weight_norm and parametrizations.weight_norm use
// it.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <vector>

#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/fallback/fallback.h"

namespace xpud::shim {
namespace {

using at::Tensor;

// The type of norms and of sums: f32 for 16-bit types, as on the CPU.
at::ScalarType NormType(const Tensor& g) {
  return c10::isReducedFloatingType(g.scalar_type()) ? at::kFloat : g.scalar_type();
}

bool AreServed(const Tensor& v, const Tensor& g) {
  return IsServed(v, ops::kFloatTypes) && IsServed(g, ops::kFloatTypes) &&
         v.scalar_type() == g.scalar_type() && v.dim() > 0 && v.numel() > 0;
}

void CheckDim(const Tensor& v, int64_t dim) {
  TORCH_CHECK(dim == 0 || dim == v.dim() - 1, "fused kernels can only be applied for first or last dim");
}

std::vector<int64_t> OtherDims(const Tensor& v, int64_t dim) {
  std::vector<int64_t> others;
  for (int64_t d = 0; d < v.dim(); ++d)
    if (d != dim) others.push_back(d);
  return others;
}

// Returns `per_slice`, of any shape, as a tensor that broadcasts along `dim` of `v`.
Tensor Along(const Tensor& v, int64_t dim, const Tensor& per_slice) {
  std::vector<int64_t> sizes(static_cast<size_t>(v.dim()), 1);
  sizes[static_cast<size_t>(dim)] = v.size(dim);
  return per_slice.reshape(sizes);
}

Tensor Norms(const Tensor& v, int64_t dim, at::ScalarType type) {
  const std::vector<int64_t> others = OtherDims(v, dim);
  if (others.empty()) return v.abs().to(type);  // a norm over no dimension would be one over all
  return at::linalg_vector_norm(v, 2, others, /*keepdim=*/true, type);
}

// Returns w, like v, and the norms, of g's shape.
std::tuple<Tensor, Tensor> WeightNorm(const Tensor& v, const Tensor& g, int64_t dim) {
  if (!AreServed(v, g)) return FallbackOf<at::_ops::_weight_norm_interface>::Call(v, g, dim);
  CheckDim(v, dim);
  const Tensor norms = Norms(v, dim, NormType(g));
  const Tensor w = at::mul(v, Along(v, dim, g).div(norms));
  return {w.to(v.scalar_type()).contiguous(), norms.reshape(g.sizes())};
}

// With s = sum(grad_w v) of a slice: grad_g = s / |v|, grad_v = g / |v| (grad_w - v s / |v|^2).
std::tuple<Tensor, Tensor> WeightNormBackward(const Tensor& grad_w, const Tensor& v, const Tensor& g,
                                              const Tensor& norms, int64_t dim) {
  if (!AreServed(v, g))
    return FallbackOf<at::_ops::_weight_norm_interface_backward>::Call(grad_w, v, g, norms, dim);
  CheckDim(v, dim);
  const at::ScalarType type = NormType(g);
  const Tensor gradient = grad_w.to(type), directions = v.to(type), norm = Along(v, dim, norms).to(type);
  const std::vector<int64_t> others = OtherDims(v, dim);
  const Tensor products = gradient.mul(directions);
  const Tensor sums = others.empty() ? products : products.sum(others, /*keepdim=*/true);
  const Tensor grad_g = sums.div(norm);
  const Tensor grad_v = gradient.sub(directions.mul(grad_g.div(norm))).mul_(Along(v, dim, g).div(norm));
  return {grad_v.to(v.scalar_type()).contiguous(), grad_g.to(g.scalar_type()).reshape(g.sizes())};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_weight_norm_interface", XPUD_FN(WeightNorm));
  m.impl("_weight_norm_interface_backward", XPUD_FN(WeightNormBackward));
}

}  // namespace
}  // namespace xpud::shim
