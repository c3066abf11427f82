#include "kernels/library/matmul/matmul_problem.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/matmul.h"

namespace xpud::kernels::matmul {
namespace {

// Returns the strides of the last three axes. Missing and broadcast axes have stride 0.
Strides StridesOf(const Operand& operand) {
  int64_t values[3] = {0, 0, 0};
  for (int from_end = 0; from_end < std::min<int>(operand.rank, 3); ++from_end) {
    const int d = operand.rank - 1 - from_end;
    if (operand.sizes[d] != 1) values[2 - from_end] = operand.strides[d];
  }
  return {values[0], values[1], values[2]};
}

int64_t SizeFromEnd(const Operand& operand, int from_end) {
  return operand.rank > from_end ? operand.sizes[operand.rank - 1 - from_end] : 1;
}

// Strides of axes of size 1 have no meaning. They become those of a dense matrix, so that equal layouts
// compare equal.
void Canonicalize(Strides& s, int64_t batch, int64_t rows, int64_t columns) {
  if (columns == 1 && rows == 1) {
    s.row = s.column = 1;
  } else if (columns == 1) {
    if (s.row == 1)
      s.column = rows;
    else
      s.column = 1;
  } else if (rows == 1) {
    if (s.column == 1)
      s.row = columns;
    else
      s.row = 1;
  }
  if (batch == 1) s.batch = 0;
}

void SwapFactors(MatmulCall& call) {
  MatmulProblem& p = call.problem;
  std::swap(p.m, p.n);
  std::swap(p.a, p.b);
  std::swap(call.operands.a, call.operands.b);
  for (Strides* s : {&p.a, &p.b, &p.c, &p.out}) std::swap(s->row, s->column);
  call.b_content = 0;
}

void FoldBatch(MatmulProblem& p) {
  const bool one_b = p.b.batch == 0 && p.batch > 1;
  const bool a_continues = p.a.batch == p.a.row * p.m || p.m == 1;
  const bool out_continues = p.out.batch == p.out.row * p.m || p.m == 1;
  const bool c_continues = !p.has_c || p.c.batch == p.c.row * p.m || p.m == 1;
  if (!one_b || !a_continues || !out_continues || !c_continues) return;
  if (p.m == 1) {
    p.a.row = p.a.batch;
    p.out.row = p.out.batch;
    p.c.row = p.c.batch;
  }
  p.m *= p.batch;
  p.batch = 1;
  p.a.batch = p.out.batch = p.c.batch = 0;
}

absl::Status CheckTypes(const ops::MatmulCall<ops::Given>& product) {
  const ops::DType type = product.a->dtype;
  bool same = product.b->dtype == type && product.out->dtype == type;
  if (product.c->present) same = same && product.c->dtype == type;
  if (same && ops::IsFloating(type)) return absl::OkStatus();
  const std::string_view a = ops::Info(type).name, b = ops::Info(product.b->dtype).name,
                         out = ops::Info(product.out->dtype).name;
  return absl::UnimplementedError(absl::StrCat("matmul of ", std::string(a), " and ", std::string(b), " to ",
                                               std::string(out),
                                               ": all operands must have one floating type"));
}

}  // namespace

MatmulOperands MatmulProblem::At(const MatmulOperands& whole, int64_t first_batch, int64_t row,
                                 int64_t column) const {
  const auto in_bytes = static_cast<int64_t>(ops::SizeOf(in)),
             b_bytes = static_cast<int64_t>(ops::SizeOf(b_source)),
             out_bytes = static_cast<int64_t>(ops::SizeOf(out_type));
  MatmulOperands part = whole;
  part.a += (first_batch * a.batch + row * a.row) * in_bytes;
  part.b += (first_batch * b.batch + column * b.column) * b_bytes;
  if (has_c) part.c += (first_batch * c.batch + row * c.row + column * c.column) * out_bytes;
  part.out += (first_batch * out.batch + row * out.row + column * out.column) * out_bytes;
  return part;
}

bool IsMatrix(const Strides& s, int64_t rows, int64_t columns) {
  return (s.column == 1 && s.row >= columns) || (s.row == 1 && s.column >= rows);
}

absl::StatusOr<MatmulCall> ReadMatmul(const OpCall& call) {
  const auto product = ops::Read<ops::MatmulCall>(call);
  RETURN_IF_ERROR(CheckTypes(product));
  const Operand &a = *product.a, &b = *product.b, &c = *product.c, &out = *product.out;
  MatmulCall read;
  MatmulProblem& p = read.problem;
  p.batch = SizeFromEnd(out, 2);
  p.m = SizeFromEnd(out, 1);
  p.n = SizeFromEnd(out, 0);
  p.k = SizeFromEnd(a, 0);
  p.a = StridesOf(a);
  p.b = StridesOf(b);
  p.out = StridesOf(out);
  p.in = p.b_source = p.out_type = a.dtype;
  p.activation = static_cast<ops::Activation>(product.activation & ~ops::kDeterministicProduct);
  read.operands = {static_cast<const std::byte*>(a.data),
                   static_cast<const std::byte*>(b.data),
                   nullptr,
                   static_cast<std::byte*>(out.data),
                   product.alpha,
                   product.beta};
  if ((product.activation & ops::kDeterministicProduct) == 0) read.b_content = b.content;
  if (c.present && product.beta != 0) {
    p.has_c = true;
    p.c = StridesOf(c);
    read.operands.c = static_cast<const std::byte*>(c.data);
  }
  p.plain = read.operands.alpha == 1 && (!p.has_c || read.operands.beta == 1);
  if (p.Empty()) return read;
  const bool c_is_out = p.has_c && c.data == out.data && p.c == p.out;
  const bool column_major = p.m > 1 && p.n > 1 && p.out.column != 1 && p.out.row == 1;
  const bool column = p.n == 1 && p.m > MatmulProblem::kFewRows && p.a.column == 1;
  if (column_major || column) SwapFactors(read);
  FoldBatch(p);
  Canonicalize(p.a, p.batch, p.m, p.k);
  Canonicalize(p.b, p.batch, p.k, p.n);
  Canonicalize(p.out, p.batch, p.m, p.n);
  if (c_is_out) p.c = p.out;
  return read;
}

}  // namespace xpud::kernels::matmul
