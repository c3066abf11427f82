// Makes loop kernels for tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "proto/loops/kernel.h"

namespace xpud::loops::testing {

class BodyBuilder {
 public:
  // Each node is made once.
  uint32_t Node(IndexOp op, uint32_t a = 0, uint32_t b = 0, int64_t constant = 0) {
    const IndexNode node = {op, a, b, constant};
    const auto found = std::ranges::find(body.indices, node);
    if (found != body.indices.end()) return static_cast<uint32_t>(found - body.indices.begin());
    body.indices.push_back(node);
    return static_cast<uint32_t>(body.indices.size() - 1);
  }
  uint32_t Number(int64_t constant) { return Node(IndexOp::kConstant, 0, 0, constant); }
  uint32_t Size(uint32_t size) { return Node(IndexOp::kSize, size); }
  // A further dimension; all outer ones come first. Returns its iterator.
  uint32_t Dimension(uint32_t extent, bool reduced = false) {
    body.extents.push_back(extent);
    if (!reduced) ++body.outer;
    return Node(IndexOp::kIterator, static_cast<uint32_t>(body.extents.size() - 1));
  }
  uint32_t Add(uint32_t a, uint32_t b) { return Node(IndexOp::kAdd, a, b); }
  uint32_t Mul(uint32_t a, uint32_t b) { return Node(IndexOp::kMul, a, b); }
  uint32_t Div(uint32_t a, int64_t b) { return Node(IndexOp::kFloorDiv, a, Number(b)); }
  uint32_t Mod(uint32_t a, int64_t b) { return Node(IndexOp::kMod, a, Number(b)); }

  uint32_t Make(const Statement& statement) {
    body.statements.push_back(statement);
    return static_cast<uint32_t>(body.statements.size() - 1);
  }
  uint32_t Real(double real, DType type = DType::kFloat32) {
    return Make({.kind = StatementKind::kConstant, .type = type, .real = real});
  }
  uint32_t Integer(int64_t integer, DType type = DType::kInt64) {
    return Make({.kind = StatementKind::kConstant, .type = type, .integer = integer});
  }
  uint32_t Load(uint32_t operand, uint32_t index) {
    return Make({.kind = StatementKind::kLoad, .operand = operand, .index = index});
  }
  uint32_t Store(uint32_t operand, uint32_t index, uint32_t value) {
    return Make(
        {.kind = StatementKind::kStore, .operand = operand, .index = index, .values = {value, kNone, kNone}});
  }
  uint32_t Call(Function function, DType type, uint32_t a, uint32_t b = kNone, uint32_t c = kNone) {
    return Make({.kind = StatementKind::kCall, .type = type, .function = function, .values = {a, b, c}});
  }
  uint32_t Reduce(Reduction reduction, DType type, uint32_t a, uint32_t b = kNone, uint32_t c = kNone) {
    return Make({.kind = StatementKind::kReduce, .type = type, .reduction = reduction, .values = {a, b, c}});
  }
  uint32_t Convert(DType type, uint32_t a) {
    return Make({.kind = StatementKind::kConvert, .type = type, .values = {a, kNone, kNone}});
  }
  uint32_t IndexValue(uint32_t index) { return Make({.kind = StatementKind::kIndexValue, .index = index}); }

  Body body;
};

// softmax over the last dimension of [size 0, size 1]: bf16 in, bf16 out.
inline Kernel Softmax() {
  BodyBuilder b;
  const uint32_t columns = b.Size(1), row = b.Dimension(b.Size(0)),
                 column = b.Dimension(columns, /*reduced=*/true);
  const uint32_t at = b.Add(b.Mul(row, columns), column);
  const uint32_t x = b.Load(0, at), largest = b.Reduce(Reduction::kMax, DType::kFloat32, x);
  const uint32_t e =
      b.Call(Function::exp, DType::kFloat32, b.Call(Function::sub, DType::kFloat32, x, largest));
  const uint32_t sum = b.Reduce(Reduction::kSum, DType::kFloat32, e);
  b.Store(1, at, b.Call(Function::div, DType::kFloat32, e, sum));
  return {.operands = {{DType::kBFloat16, Role::kRead}, {DType::kBFloat16, Role::kWritten}},
          .sizes = 2,
          .bodies = {b.body}};
}

// table[index[i]] where mask[i], else 0: [size 0], the table has size 1 elements.
inline Kernel MaskedGather() {
  BodyBuilder b;
  const uint32_t bound = b.Size(1), i = b.Dimension(b.Size(0));
  const uint32_t mask = b.Load(2, i), zero = b.Real(0);
  const uint32_t block = b.Make({.kind = StatementKind::kMask, .values = {mask, kNone, kNone}, .integer = 3});
  const uint32_t index = b.Load(1, i);
  const uint32_t indirect = b.Make(
      {.kind = StatementKind::kIndirect, .flag = true, .bound = bound, .values = {index, kNone, kNone}});
  const uint32_t value = b.Load(0, b.Node(IndexOp::kIndirect, indirect));
  const uint32_t result = b.Make({.kind = StatementKind::kUnmask, .values = {block, value, zero}});
  b.Store(3, i, result);
  return {.operands = {{DType::kFloat32, Role::kRead},
                       {DType::kInt64, Role::kRead},
                       {DType::kBool, Role::kRead},
                       {DType::kFloat32, Role::kWritten}},
          .sizes = 2,
          .bodies = {b.body}};
}

// Index expressions over a few dimensions, each of which is stored; all extents and sizes are small.
class RandomKernels {
 public:
  explicit RandomKernels(uint64_t seed) : random_(seed) {}

  int64_t Below(int64_t end) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(end)); }

  // Of two sizes. Operand 0 is int64, written at each index.
  Kernel Next() {
    BodyBuilder b;
    NextNodes(b);
    return WithAllStored(b);
  }

  // Masks whose conditions say something of index values. Operand 1 is int64, read under them.
  Kernel NextMasked() {
    BodyBuilder b;
    const std::vector<uint32_t> nodes = NextNodes(b);
    for (int64_t masks = 1 + Below(3); masks > 0; --masks) {
      const std::vector<uint32_t> subjects = {Any(nodes), Any(nodes)};
      uint32_t condition = NextComparison(b, subjects);
      for (int64_t more = Below(3); more > 0; --more) {
        const Function both = Below(4) == 0   ? Function::logical_or
                              : Below(2) == 0 ? Function::logical_and
                                              : Function::bitwise_and;
        condition = b.Call(both, DType::kBool, condition, NextComparison(b, subjects));
      }
      const uint32_t otherwise = b.Integer(0);
      const uint32_t mask =
          b.Make({.kind = StatementKind::kMask, .values = {condition, kNone, kNone}, .integer = 1});
      uint32_t index = Below(4) == 0 ? Any(nodes) : Any(subjects);
      if (Below(2) == 0) index = b.Add(index, b.Number(Below(7) - 3));
      const uint32_t value = b.Load(1, index);
      b.Store(0, b.Number(0), b.Make({.kind = StatementKind::kUnmask, .values = {mask, value, otherwise}}));
    }
    Kernel kernel = WithAllStored(b);
    kernel.operands.push_back({DType::kInt64, Role::kRead});
    return kernel;
  }

 private:
  std::vector<uint32_t> NextNodes(BodyBuilder& b) {
    std::vector<uint32_t> nodes;
    const int64_t dimensions = 1 + Below(3);
    for (int64_t d = 0; d < dimensions; ++d)
      nodes.push_back(
          b.Dimension(Below(2) == 0 ? b.Size(static_cast<uint32_t>(Below(2))) : b.Number(1 + Below(7))));
    for (int64_t i = 3 + Below(10); i > 0; --i) nodes.push_back(NextNode(b, nodes));
    return nodes;
  }

  // Each node is used: its value is written at its place, where it may be outside.
  static Kernel WithAllStored(BodyBuilder& b) {
    for (uint32_t i = 0; i < b.body.indices.size(); ++i) b.Store(0, i, b.IndexValue(i));
    return {.operands = {{DType::kInt64, Role::kWritten}}, .sizes = 2, .bodies = {b.body}};
  }

  uint32_t NextComparison(BodyBuilder& b, const std::vector<uint32_t>& nodes) {
    constexpr Function kComparisons[] = {Function::lt, Function::le, Function::gt,
                                         Function::ge, Function::eq, Function::ne};
    const uint32_t index = b.IndexValue(Any(nodes)),
                   other = Below(4) == 0 ? b.IndexValue(Any(nodes)) : b.Integer(Below(20) - 6);
    const Function comparison = kComparisons[Below(6)];
    return Below(2) == 0 ? b.Call(comparison, DType::kInt64, index, other)
                         : b.Call(comparison, DType::kInt64, other, index);
  }

  uint32_t Any(const std::vector<uint32_t>& nodes) {
    return nodes[static_cast<size_t>(Below(static_cast<int64_t>(nodes.size())))];
  }

  uint32_t NextNode(BodyBuilder& b, const std::vector<uint32_t>& nodes) {
    const uint32_t a = Any(nodes), other = Any(nodes);
    const int64_t divisor = 1 + Below(6);
    switch (Below(9)) {
      case 0:
        return b.Mul(a, b.Number(Below(9) - 4));
      case 1:
        return b.Add(a, b.Number(Below(9) - 4));
      case 2:
        return b.Div(a, divisor);
      case 3:
        return b.Mod(a, divisor);
      case 4:  // taken from each other, and joined
        return b.Add(b.Mul(b.Div(a, divisor), b.Number(divisor)), b.Mod(a, divisor));
      case 5:
        return b.Node(Below(2) == 0 ? IndexOp::kMin : IndexOp::kMax, a, other);
      case 6:
        return Below(2) == 0 ? b.Node(IndexOp::kAbs, a) : b.Mul(a, other);
      case 7: {  // three digits
        const int64_t next = 1 + Below(4);
        const uint32_t high = b.Mul(b.Mod(b.Div(a, divisor), next), b.Number(divisor));
        return b.Add(b.Add(b.Mul(b.Div(a, divisor * next), b.Number(divisor * next)), high),
                     b.Mod(a, divisor));
      }
      default:
        return b.Add(a, other);
    }
  }

  std::mt19937_64 random_;
};

}  // namespace xpud::loops::testing
