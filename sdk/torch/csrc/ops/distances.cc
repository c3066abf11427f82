// Distances between the rows of matrices (cdist), or of one matrix (pdist), and their gradients. A distance
// is a sum over the columns of two rows, so no tensor of differences is stored.
//
// The gradient of |x - y|_p by x is sign(x - y) |x - y|^(p - 1) / |x - y|_p^(p - 1).
#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>

#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/engines/reduce.h"
#include "sdk/torch/csrc/fallback/fallback.h"

namespace xpud::shim {
namespace {

using at::Tensor;

constexpr int64_t kFewRows = 25;  // beyond, ATen computes Euclidean distances by a product

bool IsServedBy(const Tensor& a, const Tensor& b) {
  const ops::DTypeSet types = ops::SetOf(ops::DType::kFloat32) | ops::SetOf(ops::DType::kFloat64);
  return IsOnDevice(a) && IsOnDevice(b) && IsSupported(a.scalar_type(), types) &&
         a.scalar_type() == b.scalar_type() && a.device() == b.device();
}

Tensor Reduce(const ops::Row& row, c10::ArrayRef<Tensor> inputs, int64_t dim) {
  return LaunchReductions(row, inputs, dim, /*keepdim=*/false, *ToDType(inputs[0].scalar_type()),
                          inputs[0].scalar_type())[0];
}

// A number as a tensor of rank 4 on the device.
Tensor Number(double number, const Tensor& like) { return at::full({1, 1, 1, 1}, number, like.options()); }

// The rows of two batches of matrices, in pairs: [batch, rows, other rows, columns].
struct Pairs {
  Pairs(const Tensor& x, const Tensor& y) {
    const int64_t batch = x.size(0), rows = x.size(1), others = y.size(1), columns = x.size(2);
    a = x.unsqueeze(2).expand({batch, rows, others, columns});
    b = y.unsqueeze(1);
  }
  Tensor a, b;
};

// `x` is [batch, rows, columns], `y` [batch, others, columns]; returns [batch, rows, others].
Tensor Distances(const Tensor& x, const Tensor& y, double p) {
  static const ops::Row &zero = ops::RowOf("xpud::distance_0"), &one = ops::RowOf("xpud::distance_1"),
                        &two = ops::RowOf("xpud::distance_2"), &most = ops::RowOf("xpud::distance_inf"),
                        &any = ops::RowOf("xpud::distance_p");
  if (x.numel() == 0 || y.numel() == 0) return at::zeros({x.size(0), x.size(1), y.size(1)}, x.options());
  const Pairs pairs(x, y);
  if (p == 0) return Reduce(zero, {pairs.a, pairs.b}, 3);
  if (p == 1) return Reduce(one, {pairs.a, pairs.b}, 3);
  if (p == 2) return Reduce(two, {pairs.a, pairs.b}, 3);
  if (std::isinf(p)) return Reduce(most, {pairs.a, pairs.b}, 3);
  return Reduce(any, {pairs.a, pairs.b, Number(p, x)}, 3).pow_(1 / p);
}

// The gradient by `x`, from that of the distances and the distances themselves.
Tensor GradientOfDistances(const Tensor& gradient, const Tensor& x, const Tensor& y, double p,
                           const Tensor& distances) {
  static const ops::Row &one = ops::RowOf("xpud::distance_1_backward"),
                        &two = ops::RowOf("xpud::distance_2_backward"),
                        &most = ops::RowOf("xpud::distance_inf_backward"),
                        &any = ops::RowOf("xpud::distance_p_backward");
  if (p == 0 || x.numel() == 0 || y.numel() == 0) return at::zeros(x.sizes(), x.options());
  const Pairs pairs(x, y);
  const Tensor weight = gradient.unsqueeze(3);
  if (p == 1) return Reduce(one, {pairs.a, pairs.b, weight}, 2);
  if (std::isinf(p)) return Reduce(most, {pairs.a, pairs.b, weight, distances.unsqueeze(3)}, 2);
  const Tensor power = p == 2 ? distances : distances.pow(p - 1);
  const Tensor scaled = gradient.div(power).masked_fill_(distances.eq(0), 0).unsqueeze(3);
  if (p == 2) return Reduce(two, {pairs.a, pairs.b, scaled}, 2);
  return Reduce(any, {pairs.a, pairs.b, scaled, Number(p - 1, x)}, 2);
}

// The common sizes of all dimensions but the last two.
std::vector<int64_t> BatchOf(const Tensor& x, const Tensor& y) {
  return at::infer_size(x.sizes().slice(0, static_cast<size_t>(x.dim()) - 2),
                        y.sizes().slice(0, static_cast<size_t>(y.dim()) - 2));
}

// Expanded to `batch`, which becomes one dimension.
Tensor Batched(const Tensor& x, c10::IntArrayRef batch) {
  std::vector<int64_t> sizes(batch.begin(), batch.end());
  sizes.insert(sizes.end(), {x.size(-2), x.size(-1)});
  return x.expand(sizes).reshape({c10::multiply_integers(batch), x.size(-2), x.size(-1)});
}

Tensor Cdist(const Tensor& x, const Tensor& y, double p, std::optional<int64_t> mode) {
  if (!IsServedBy(x, y) || x.dim() < 2 || y.dim() < 2 || x.size(-1) != y.size(-1) || !(p >= 0))
    return FallbackOf<at::_ops::_cdist_forward>::Call(x, y, p, mode);
  const int64_t way = mode.value_or(0);
  TORCH_CHECK(way >= 0 && way <= 2, "possible modes: 0, 1, 2, but was: ", way);
  std::vector<int64_t> sizes = BatchOf(x, y);
  const Tensor a = Batched(x, sizes), b = Batched(y, sizes);
  const bool by_product = way == 1 || (way == 0 && (a.size(1) > kFewRows || b.size(1) > kFewRows));
  sizes.insert(sizes.end(), {a.size(1), b.size(1)});
  const bool empty = a.numel() == 0 || b.numel() == 0;
  return (p == 2 && by_product && !empty ? at::_euclidean_dist(a, b) : Distances(a, b, p)).view(sizes);
}

Tensor CdistBackward(const Tensor& gradient, const Tensor& x, const Tensor& y, double p,
                     const Tensor& distances) {
  if (!IsServedBy(x, y) || !IsServedBy(gradient, distances))
    return FallbackOf<at::_ops::_cdist_backward>::Call(gradient, x, y, p, distances);
  std::vector<int64_t> sizes = BatchOf(x, y);
  const Tensor a = Batched(x, sizes), b = Batched(y, sizes), g = Batched(gradient, sizes);
  const Tensor result = GradientOfDistances(g, a, b, p, Batched(distances, sizes));
  sizes.insert(sizes.end(), {a.size(1), a.size(2)});
  return result.view(sizes);
}

// ---- one matrix: pairs (i, j) with i < j, in the order of i ----

struct Triangle {
  Triangle(int64_t n, const Tensor& like) {
    const Tensor pairs = at::triu_indices(n, n, 1, like.options().dtype(at::kLong));
    upper = pairs.select(0, 0).mul(n).add_(pairs.select(0, 1));
    lower = pairs.select(0, 1).mul(n).add_(pairs.select(0, 0));
  }
  // A symmetric matrix [1, n, n] of the pairs' values.
  Tensor Square(const Tensor& values, int64_t n) const {
    Tensor square = at::zeros({n * n}, values.options());
    square.index_copy_(0, upper, values).index_copy_(0, lower, values);
    return square.view({1, n, n});
  }
  Tensor upper, lower;  // positions in the matrix
};

Tensor Pdist(const Tensor& self, double p) {
  if (!IsServedBy(self, self) || self.dim() != 2 || !(p >= 0))
    return FallbackOf<at::_ops::_pdist_forward>::Call(self, p);
  const int64_t n = self.size(0);
  if (n <= 1) return at::empty({0}, self.options());
  const Tensor rows = self.unsqueeze(0);
  return Distances(rows, rows, p).view({n * n}).index_select(0, Triangle(n, self).upper);
}

Tensor PdistBackward(const Tensor& gradient, const Tensor& self, double p, const Tensor& distances) {
  if (!IsServedBy(self, self) || !IsServedBy(gradient, distances))
    return FallbackOf<at::_ops::_pdist_backward>::Call(gradient, self, p, distances);
  const int64_t n = self.size(0);
  if (n <= 1) return at::zeros_like(self, self.options(), at::MemoryFormat::Contiguous);
  const Triangle triangle(n, self);
  const Tensor rows = self.unsqueeze(0);
  return GradientOfDistances(triangle.Square(gradient.contiguous(), n), rows, rows, p,
                             triangle.Square(distances, n))
      .squeeze(0);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_cdist_forward", XPUD_FN(Cdist));
  m.impl("_cdist_backward", XPUD_FN(CdistBackward));
  m.impl("_pdist_forward", XPUD_FN(Pdist));
  m.impl("_pdist_backward", XPUD_FN(PdistBackward));
}

}  // namespace
}  // namespace xpud::shim
