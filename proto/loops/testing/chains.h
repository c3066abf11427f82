// Fused kernels as models have them, over a matrix of rows x columns: for benchmarks and tests of compilers.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "proto/loops/testing/builder.h"

namespace xpud::loops::testing {

struct Chain {
  std::string_view name;
  Kernel kernel;
  std::vector<int64_t> elements;  // of each operand
};

// places[index[i]] += value[i]: operands are index, value (int8) and places. Integers of few bits have exact
// sums in every type, whatever the order.
inline Kernel ScatteredSums(int64_t values, int64_t places, DType type) {
  BodyBuilder b;
  const uint32_t at = b.Dimension(b.Number(values));
  const uint32_t indirect = b.Make(
      {.kind = StatementKind::kIndirect, .bound = b.Number(places), .values = {b.Load(0, at), kNone, kNone}});
  b.Make({.kind = StatementKind::kAtomicAdd,
          .operand = 2,
          .index = b.Node(IndexOp::kIndirect, indirect),
          .values = {b.Convert(ComputeTypeOf(type), b.Load(1, at)), kNone, kNone}});
  return {.operands = {{DType::kInt64, Role::kRead}, {DType::kInt8, Role::kRead}, {type, Role::kUpdated}},
          .sizes = 0,
          .bodies = {b.body}};
}

// x[b, r, c] += y[b, c, r] * z[c, r]: operands are y, z and x. Sizes are symbolic: batches, rows, columns.
inline Kernel TransposedProducts(DType type) {
  BodyBuilder b;
  const DType computed = ComputeTypeOf(type);
  const uint32_t rows = b.Size(1), columns = b.Size(2);
  const uint32_t batch = b.Dimension(b.Size(0)), row = b.Dimension(rows), column = b.Dimension(columns);
  const auto at = [&](uint32_t outer, uint32_t count, uint32_t inner) {
    return b.Add(b.Mul(outer, count), inner);
  };
  const uint32_t to = at(at(batch, rows, row), columns, column),
                 turned = at(at(batch, columns, column), rows, row);
  const uint32_t product =
      b.Call(Function::mul, computed, b.Load(0, turned), b.Load(1, at(column, rows, row)));
  b.Store(2, to, b.Call(Function::add, computed, b.Load(2, to), product));
  return {.operands = {{type, Role::kRead}, {type, Role::kRead}, {type, Role::kUpdated}},
          .sizes = 3,
          .bodies = {b.body}};
}

// Makes the chains for a type of f32, f16 or bf16. Sizes are constants, as Inductor has them.
class Chains {
 public:
  Chains(int64_t rows, int64_t columns, DType type) : rows_(rows), columns_(columns), type_(type) {}

  std::vector<Chain> All() const {
    return {GeluOfProduct(), BiasSiluProduct(), ResidualLayerNorm(), RmsNorm(), MaskedSoftmax(),
            ColumnSums(),    TransposedAdd(),   GatherAdd(),         Sum(),     RmsNormRotary()};
  }

  // gelu(a * b + c) * d
  Chain GeluOfProduct() const {
    BodyBuilder b;
    const uint32_t at = b.Dimension(b.Number(rows_ * columns_));
    const uint32_t sum = Add(b, Mul(b, b.Load(0, at), b.Load(1, at)), b.Load(2, at));
    const uint32_t half = Mul(b, sum, b.Real(0.5));
    const uint32_t erf = b.Call(Function::erf, kF32, Mul(b, sum, b.Real(0.7071067811865476)));
    b.Store(4, at, Mul(b, Mul(b, half, Add(b, erf, b.Real(1))), b.Load(3, at)));
    return Made("gelu_of_product", b, {kAll, kAll, kAll, kAll, kAll});
  }
  // silu(a + bias) * b
  Chain BiasSiluProduct() const {
    BodyBuilder b;
    const uint32_t row = b.Dimension(b.Number(rows_)), column = b.Dimension(b.Number(columns_)),
                   at = b.Add(b.Mul(row, b.Number(columns_)), column);
    const uint32_t x = Add(b, b.Load(0, at), b.Load(1, column));
    const uint32_t silu = Mul(b, x, b.Call(Function::sigmoid, kF32, x));
    b.Store(3, at, Mul(b, silu, b.Load(2, at)));
    return Made("bias_silu_product", b, {kAll, kColumns, kAll, kAll});
  }
  // layer_norm(a + b) * weight + bias, and a + b
  Chain ResidualLayerNorm() const {
    BodyBuilder b;
    const uint32_t column = Rows(b), at = At(b, column);
    const uint32_t x = Add(b, b.Load(0, at), b.Load(1, at));
    const uint32_t mean = b.Reduce(Reduction::kWelford, kF32, x);
    const uint32_t squares =
        b.Make({.kind = StatementKind::kPart, .values = {mean, kNone, kNone}, .integer = 1});
    const uint32_t variance = b.Call(Function::div, kF32, squares, b.Real(static_cast<double>(columns_)));
    const uint32_t scale = b.Call(Function::rsqrt, kF32, Add(b, variance, b.Real(1e-5)));
    const uint32_t normal = Mul(b, b.Call(Function::sub, kF32, x, mean), scale);
    b.Store(4, at, x);
    b.Store(5, at, Add(b, Mul(b, normal, b.Load(2, column)), b.Load(3, column)));
    return Made("residual_layer_norm", b, {kAll, kAll, kColumns, kColumns, kAll, kAll}, 2);
  }
  // x * rsqrt(mean(x^2)) * weight
  Chain RmsNorm() const {
    BodyBuilder b;
    const uint32_t column = Rows(b), at = At(b, column);
    const uint32_t x = b.Load(0, at);
    const uint32_t sum = b.Reduce(Reduction::kSum, kF32, Mul(b, x, x));
    const uint32_t mean = b.Call(Function::div, kF32, sum, b.Real(static_cast<double>(columns_)));
    const uint32_t scale = b.Call(Function::rsqrt, kF32, Add(b, mean, b.Real(1e-5)));
    b.Store(2, at, Mul(b, Mul(b, x, scale), b.Load(1, column)));
    return Made("rms_norm", b, {kAll, kColumns, kAll});
  }
  // softmax(a * 0.125 + mask)
  Chain MaskedSoftmax() const {
    BodyBuilder b;
    const uint32_t column = Rows(b), at = At(b, column);
    const uint32_t x = Add(b, Mul(b, b.Load(0, at), b.Real(0.125)), b.Load(1, column));
    const uint32_t largest = b.Reduce(Reduction::kMax, kF32, x);
    const uint32_t e = b.Call(Function::exp, kF32, b.Call(Function::sub, kF32, x, largest));
    const uint32_t sum = b.Reduce(Reduction::kSum, kF32, e);
    b.Store(2, at, b.Call(Function::div, kF32, e, sum));
    return Made("masked_softmax", b, {kAll, kColumns, kAll});
  }
  // sums of a * b over the rows, in f32
  Chain ColumnSums() const {
    BodyBuilder b;
    const uint32_t column = b.Dimension(b.Number(columns_)),
                   row = b.Dimension(b.Number(rows_), /*reduced=*/true),
                   at = b.Add(b.Mul(row, b.Number(columns_)), column);
    b.Store(2, column, b.Reduce(Reduction::kSum, kF32, Mul(b, b.Load(0, at), b.Load(1, at))));
    return Made("column_sums", b, {kAll, kAll, kColumns});
  }
  // a + b transposed
  Chain TransposedAdd() const {
    BodyBuilder b;
    const uint32_t row = b.Dimension(b.Number(rows_)), column = b.Dimension(b.Number(columns_)),
                   at = b.Add(b.Mul(row, b.Number(columns_)), column),
                   across = b.Add(b.Mul(column, b.Number(rows_)), row);
    b.Store(2, at, Add(b, b.Load(0, at), b.Load(1, across)));
    return Made("transposed_add", b, {kAll, kAll, kAll});
  }
  // table[index[row]] + a
  Chain GatherAdd() const {
    BodyBuilder b;
    const uint32_t bound = b.Number(rows_), row = b.Dimension(bound),
                   column = b.Dimension(b.Number(columns_)),
                   at = b.Add(b.Mul(row, b.Number(columns_)), column);
    const uint32_t indirect = b.Make({.kind = StatementKind::kIndirect,
                                      .flag = true,
                                      .bound = bound,
                                      .values = {b.Load(1, row), kNone, kNone}});
    const uint32_t from = b.Add(b.Mul(b.Node(IndexOp::kIndirect, indirect), b.Number(columns_)), column);
    b.Store(3, at, Add(b, b.Load(0, from), b.Load(2, at)));
    Chain chain = Made("gather_add", b, {kAll, kRows, kAll, kAll});
    chain.kernel.operands[1].type = DType::kInt64;
    return chain;
  }
  // y cos + rotate(y) sin, where y is the RMS norm of a, and the halves of a rotated row are exchanged, the
  // first one with the other sign.
  Chain RmsNormRotary() const {
    BodyBuilder b;
    const uint32_t column = Rows(b);
    const uint32_t x = b.Load(0, At(b, column));
    const uint32_t mean =
        b.Call(Function::div, kF32, b.Reduce(Reduction::kSum, kF32, Mul(b, x, x)), b.Real(columns_));
    const uint32_t scale = b.Call(Function::rsqrt, kF32, Add(b, mean, b.Real(1e-6)));
    const uint32_t same = Mul(b, Mul(b, x, scale), b.Load(1, column));
    const uint32_t place = b.IndexValue(column), half = b.Integer(columns_ / 2), zero = b.Real(0);
    const auto rotated = [&](bool first) {
      const uint32_t other = b.Add(column, b.Number((first ? 1 : -1) * (columns_ / 2)));
      const uint32_t holds = b.Call(first ? Function::lt : Function::ge, DType::kInt64, place, half);
      const uint32_t mask =
          b.Make({.kind = StatementKind::kMask, .values = {holds, kNone, kNone}, .integer = first ? 3 : 2});
      uint32_t value = Mul(b, b.Load(0, At(b, other)), scale);
      if (first) value = b.Call(Function::neg, kF32, value);
      return b.Make({.kind = StatementKind::kUnmask, .values = {mask, value, zero}});
    };
    const uint32_t both = Add(b, rotated(true), rotated(false));
    b.Store(3, At(b, column), Add(b, same, Mul(b, both, b.Load(2, column))));
    return Made("rms_norm_rotary", b, {kAll, kColumns, kColumns, kAll});
  }
  // the sum of a * b, in f32
  Chain Sum() const {
    BodyBuilder b;
    const uint32_t at = b.Dimension(b.Number(rows_ * columns_), /*reduced=*/true);
    b.Store(2, b.Number(0), b.Reduce(Reduction::kSum, kF32, Mul(b, b.Load(0, at), b.Load(1, at))));
    return Made("sum", b, {kAll, kAll, kOne});
  }

 private:
  static constexpr DType kF32 = DType::kFloat32;
  enum Size { kOne, kRows, kColumns, kAll };

  static uint32_t Add(BodyBuilder& b, uint32_t x, uint32_t y) { return b.Call(Function::add, kF32, x, y); }
  static uint32_t Mul(BodyBuilder& b, uint32_t x, uint32_t y) { return b.Call(Function::mul, kF32, x, y); }
  // Rows whose columns are reduced. Returns the column.
  uint32_t Rows(BodyBuilder& b) const {
    b.Dimension(b.Number(rows_));
    return b.Dimension(b.Number(columns_), /*reduced=*/true);
  }
  uint32_t At(BodyBuilder& b, uint32_t column) const {
    return b.Add(b.Mul(b.Node(IndexOp::kIterator, 0), b.Number(columns_)), column);
  }
  // The last operands are written.
  Chain Made(std::string_view name, const BodyBuilder& b, const std::vector<Size>& operands,
             size_t written = 1) const {
    Chain chain = {.name = name, .kernel = {}, .elements = {}};
    for (size_t i = 0; i < operands.size(); ++i) {
      const bool is_written = i + written >= operands.size();
      const bool is_sum = is_written && operands[i] != kAll;
      chain.kernel.operands.push_back({is_sum ? kF32 : type_, is_written ? Role::kWritten : Role::kRead});
      const int64_t sizes[] = {1, rows_, columns_, rows_ * columns_};
      chain.elements.push_back(sizes[operands[i]]);
    }
    chain.kernel.bodies = {b.body};
    return chain;
  }

  const int64_t rows_, columns_;
  const DType type_;
};

}  // namespace xpud::loops::testing
