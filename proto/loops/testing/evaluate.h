// The values of index expressions, for tests. Sums and products wrap, as they do in kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "proto/loops/kernel.h"

namespace xpud::loops::testing {

// Where an index is evaluated.
struct Place {
  std::span<const int64_t> iterators;  // of all dimensions
  std::span<const int64_t> sizes;
  absl::FunctionRef<int64_t(uint32_t statement)> indirect;
};

// REQUIRES: divisors are at least 1, which CheckCall ensures.
inline int64_t Evaluate(const Body& body, uint32_t at, const Place& place) {
  std::vector<bool> is_needed(at + 1);
  is_needed[at] = true;
  for (uint32_t i = at + 1; i-- > 0;) {
    const int arity = is_needed[i] ? ArityOf(body.indices[i].op) : 0;
    if (arity > 0) is_needed[body.indices[i].a] = true;
    if (arity > 1) is_needed[body.indices[i].b] = true;
  }
  std::vector<int64_t> values(at + 1);
  for (uint32_t i = 0; i <= at; ++i) {
    if (!is_needed[i]) continue;
    const IndexNode& node = body.indices[i];
    const int arity = ArityOf(node.op);
    const int64_t a = arity > 0 ? values[node.a] : 0, b = arity > 1 ? values[node.b] : 0;
    const auto wrapped_a = static_cast<uint64_t>(a), wrapped_b = static_cast<uint64_t>(b);
    switch (node.op) {
      case IndexOp::kConstant:
        values[i] = node.constant;
        break;
      case IndexOp::kIterator:
        values[i] = place.iterators[node.a];
        break;
      case IndexOp::kSize:
        values[i] = place.sizes[node.a];
        break;
      case IndexOp::kIndirect:
        values[i] = place.indirect(node.a);
        break;
      case IndexOp::kAdd:
        values[i] = static_cast<int64_t>(wrapped_a + wrapped_b);
        break;
      case IndexOp::kMul:
        values[i] = static_cast<int64_t>(wrapped_a * wrapped_b);
        break;
      case IndexOp::kFloorDiv:
        values[i] = a / b - (a % b < 0);
        break;
      case IndexOp::kMod:
        values[i] = a % b + (a % b < 0 ? b : 0);
        break;
      case IndexOp::kMin:
        values[i] = std::min(a, b);
        break;
      case IndexOp::kMax:
        values[i] = std::max(a, b);
        break;
      case IndexOp::kAbs:
        values[i] = a < 0 ? static_cast<int64_t>(-wrapped_a) : a;
        break;
    }
  }
  return values[at];
}

// The value of a statement that RandomKernels::NextMasked makes, of those before it; 0 of others.
inline int64_t ValueOf(const Body& body, const Statement& s, std::span<const int64_t> values,
                       const Place& place) {
  if (s.kind == StatementKind::kConstant) return s.integer;
  if (s.kind == StatementKind::kIndexValue) return Evaluate(body, s.index, place);
  if (s.kind != StatementKind::kCall) return 0;
  const int64_t a = values[s.values[0]], b = values[s.values[1]];
  switch (s.function) {
    case Function::lt:
      return a < b;
    case Function::le:
      return a <= b;
    case Function::gt:
      return a > b;
    case Function::ge:
      return a >= b;
    case Function::eq:
      return a == b;
    case Function::ne:
      return a != b;
    case Function::logical_or:
      return a != 0 || b != 0;
    default:  // the other two that combine conditions
      return a != 0 && b != 0;
  }
}

// Moves to the next position, the last dimension first. Returns false after the last one.
inline bool Next(std::span<int64_t> iterators, std::span<const int64_t> extents) {
  for (size_t d = iterators.size(); d-- > 0;) {
    if (++iterators[d] < extents[d]) return true;
    iterators[d] = 0;
  }
  return false;
}

}  // namespace xpud::loops::testing
