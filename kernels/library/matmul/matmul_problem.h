// kMatmul in canonical form: equivalent descriptors have equal problems. A plain value, used as the key of a
// plan: its padding is zeroed, and it is compared by bytes.
#pragma once

#include <cstring>

#include "absl/status/statusor.h"
#include "kernels/api/op_call.h"

namespace xpud::kernels::matmul {

// Strides in elements of a stack of matrices.
struct Strides {
  int64_t batch = 0;
  int64_t row = 0;
  int64_t column = 0;
  bool operator==(const Strides&) const = default;
};

struct MatmulOperands;

// out[batch,m,n] = activation(alpha * a[batch,m,k] b[batch,k,n] + beta * c), without alpha and beta.
struct MatmulProblem {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  Strides a, b, c, out;  // c: 0 for broadcast axes; out's, if c is out
  ops::Activation activation = ops::Activation::kNone;
  ops::DType in = ops::DType::kFloat32;  // of a and b in the multiplication
  ops::DType b_source =
      ops::DType::kFloat32;  // of b in memory: differs from `in` for weights that are packed from f16
  ops::DType out_type = ops::DType::kFloat32;  // of c and out
  bool has_c = false;
  bool plain = false;   // alpha is 1, and beta too if there is c
  bool packed = false;  // tiled for packed weights
  bool panels = false;  // b is in packed panels already (oneDNN only)
  bool unused[1] = {};

  bool operator==(const MatmulProblem& other) const { return std::memcmp(this, &other, sizeof(*this)) == 0; }
  template <typename H>
  friend H AbslHashValue(H state, const MatmulProblem& p) {
    return H::combine_contiguous(std::move(state), reinterpret_cast<const unsigned char*>(&p), sizeof(p));
  }

  // Returns true if c is a row that is added to each row of out. Out itself is not, also if it is a single
  // row: a library may write out before it reads such a row.
  bool RowBias() const { return has_c && c.row == 0 && c.batch == 0 && (c.column == 1 || n == 1); }
  // Returns true for a few rows with contiguous columns. Reading b limits the speed. Dot products do so
  // without copying b, in any type up to f32. (oneDNN has instructions for bf16 and is faster from 3 rows.)
  bool FewRows() const {
    return m <= (in == ops::DType::kBFloat16 ? 2 : kFewRows) && !packed && in == b_source &&
           in != ops::DType::kFloat64 && b.row == 1 && b.column >= k && k >= 16 && k <= kMaxDot;
  }
  // The operands of the part of the product that begins there.
  MatmulOperands At(const MatmulOperands& whole, int64_t first_batch, int64_t row, int64_t column) const;
  static constexpr int64_t kFewRows = 4;
  static constexpr int64_t kMaxDot = 1 << 16;
  bool Empty() const { return batch == 0 || m == 0 || n == 0; }
};
static_assert(std::has_unique_object_representations_v<MatmulProblem>);

// The values of a call that has the problem.
struct MatmulOperands {
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  const std::byte* c = nullptr;
  std::byte* out = nullptr;
  double alpha = 1, beta = 1;
};

struct MatmulCall {
  MatmulProblem problem;
  MatmulOperands operands;
  uint64_t b_content = 0;  // Operand::content of b; 0 if the product must not depend on what was packed
};

// Reads a call of family kMatmul into canonical form. Folds a batch into m if it shares one matrix b, swaps a
// and b if out is column-major or a column, drops c if beta is 0, and gives axes of size 1 the strides of a
// dense matrix. Returns Unimplemented if element types differ or are not floating.
absl::StatusOr<MatmulCall> ReadMatmul(const OpCall& call);

// Returns true if libraries support the layout: one unit stride, and rows (or columns) that do not overlap.
bool IsMatrix(const Strides& strides, int64_t rows, int64_t columns);

}  // namespace xpud::kernels::matmul
