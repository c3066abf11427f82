#include "kernels/families/layout.h"

#include <utility>

namespace xpud::kernels {

Layout Layout::Over(const Operand& shape) {
  Layout layout;
  layout.rank = shape.rank;
  layout.sizes = shape.sizes;
  return layout;
}

void Layout::AddOperand(const Operand& operand) {
  auto& to = strides[static_cast<size_t>(operands++)];
  to = {};
  if (operand.immediate || !operand.present) return;
  for (size_t d = 0; d < static_cast<size_t>(rank); ++d)
    to[d] = operand.sizes[d] == 1 ? 0 : operand.strides[d];
}

void Layout::Collapse(bool may_permute) {
  const auto swap_dims = [&](size_t x, size_t y) {
    std::swap(sizes[x], sizes[y]);
    for (int o = 0; o < operands; ++o)
      std::swap(strides[static_cast<size_t>(o)][x], strides[static_cast<size_t>(o)][y]);
  };
  const auto move_dim = [&](size_t from, size_t to) {
    sizes[to] = sizes[from];
    for (int o = 0; o < operands; ++o)
      strides[static_cast<size_t>(o)][to] = strides[static_cast<size_t>(o)][from];
  };
  size_t kept = 0;
  for (size_t d = 0; d < static_cast<size_t>(rank); ++d) {
    if (sizes[d] != 1) move_dim(d, kept++);
  }
  if (may_permute) {
    for (size_t i = 1; i < kept; ++i) {
      for (size_t j = i; j > 0 && strides[0][j - 1] < strides[0][j]; --j) swap_dims(j - 1, j);
    }
  }
  size_t out = 0;
  for (size_t d = 1; d < kept; ++d) {
    bool merges = true;
    for (int o = 0; o < operands; ++o) {
      const auto& s = strides[static_cast<size_t>(o)];
      merges &= s[out] == s[d] * sizes[d];
    }
    const int64_t outer = sizes[out];
    move_dim(d, merges ? out : ++out);
    if (merges) sizes[out] *= outer;
  }
  rank = kept == 0 ? 1 : static_cast<int>(out) + 1;
  if (kept == 0) {
    // One element: any stride is valid, so use the one that most kernels have.
    sizes[0] = 1;
    for (int o = 0; o < operands; ++o) strides[static_cast<size_t>(o)][0] = 1;
  }
}

int64_t Layout::numel() const {
  int64_t n = 1;
  for (int d = 0; d < rank; ++d) n *= sizes[static_cast<size_t>(d)];
  return n;
}

Access Layout::AccessOf(int operand) const {
  const int64_t s = stride(operand, rank - 1);
  return s == 1 ? Access::kContiguous : s == 0 ? Access::kBroadcast : Access::kStrided;
}

bool Layout::Fits32() const {
  constexpr int64_t kLimit = int64_t{1} << 31;
  if (numel() >= kLimit) return false;
  for (int o = 0; o < operands; ++o) {
    int64_t reach = 0;
    for (int d = 0; d < rank; ++d) {
      if (stride(o, d) < 0) return false;
      reach += stride(o, d) * (sizes[static_cast<size_t>(d)] - 1);
    }
    if (reach >= kLimit) return false;
  }
  return true;
}

}  // namespace xpud::kernels
