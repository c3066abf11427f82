#include "kernels/loops/mask_segments.h"

#include <algorithm>
#include <optional>

namespace xpud::kernels {
namespace {

using loops::Body;
using loops::Function;
using loops::IndexNode;
using loops::IndexOp;
using loops::kNone;
using loops::Statement;
using loops::StatementKind;

// Sums with an iterator, which is less than loops::kMaxPositions, are exact.
constexpr int64_t kMaxConstant = int64_t{1} << 62;

// A number, or the iterator and a number.
struct Sum {
  bool has_iterator = false;
  int64_t constant = 0;
};

std::optional<Sum> SumOf(const Body& body, uint32_t index, uint32_t dimension) {
  const IndexNode& node = body.indices[index];
  if (node.op == IndexOp::kConstant) return Sum{false, node.constant};
  if (node.op == IndexOp::kIterator && node.a == dimension) return Sum{true, 0};
  if (node.op != IndexOp::kAdd) return std::nullopt;
  const std::optional<Sum> a = SumOf(body, node.a, dimension), b = SumOf(body, node.b, dimension);
  Sum sum;
  if (!a || !b || (a->has_iterator && b->has_iterator) ||
      __builtin_add_overflow(a->constant, b->constant, &sum.constant) || sum.constant > kMaxConstant ||
      sum.constant < -kMaxConstant)
    return std::nullopt;
  sum.has_iterator = a->has_iterator || b->has_iterator;
  return sum;
}

std::optional<Sum> ValueOf(const Body& body, uint32_t value, uint32_t dimension) {
  const Statement& s = body.statements[value];
  if (s.kind == StatementKind::kConstant && s.type == ops::DType::kInt64) return Sum{false, s.integer};
  if (s.kind == StatementKind::kIndexValue) return SumOf(body, s.index, dimension);
  return std::nullopt;
}

std::optional<MaskSegments::Comparison> ComparisonOf(const Body& body, uint32_t i, uint32_t dimension) {
  const Statement& s = body.statements[i];
  const bool is_less = s.function == Function::lt, is_at_most = s.function == Function::le,
             is_more = s.function == Function::gt, is_at_least = s.function == Function::ge;
  if ((!is_less && !is_at_most && !is_more && !is_at_least) || s.type != ops::DType::kInt64)
    return std::nullopt;
  const std::optional<Sum> a = ValueOf(body, s.values[0], dimension),
                           b = ValueOf(body, s.values[1], dimension);
  if (!a || !b || a->has_iterator == b->has_iterator) return std::nullopt;
  MaskSegments::Comparison found = {.statement = i, .at = 0, .is_before = is_less || is_at_most};
  // The iterator's value where both are equal belongs to what is before, or to what follows.
  bool equal_is_before = is_at_most || is_more;
  if (b->has_iterator) {
    found.is_before = !found.is_before;
    equal_is_before = !equal_is_before;
  }
  const int64_t sign = a->has_iterator ? 1 : -1;
  if (__builtin_sub_overflow(b->constant, a->constant, &found.at) ||
      __builtin_mul_overflow(found.at, sign, &found.at) ||
      __builtin_add_overflow(found.at, equal_is_before ? 1 : 0, &found.at))
    return std::nullopt;
  return found;
}

bool Combines(Function function) {
  switch (function) {
    case Function::logical_not:
    case Function::logical_and:
    case Function::logical_or:
    case Function::bitwise_and:
    case Function::bitwise_or:
    case Function::bitwise_not:
      return true;
    default:
      return false;
  }
}

}  // namespace

MaskSegments MaskSegments::Of(const Body& body, uint32_t dimension) {
  MaskSegments made;
  std::vector<bool> decides(body.statements.size());  // a mask
  for (auto i = static_cast<uint32_t>(body.statements.size()); i-- > 0;) {
    const Statement& s = body.statements[i];
    if (s.kind == StatementKind::kMask) decides[s.values[0]] = true;
    if (!decides[i] || s.kind != StatementKind::kCall) continue;
    if (const std::optional<Comparison> comparison = ComparisonOf(body, i, dimension)) {
      made.comparisons.push_back(*comparison);
      made.ends.push_back(comparison->at);
    } else if (Combines(s.function)) {
      for (const uint32_t value : s.values)
        if (value != kNone) decides[value] = true;
    }
  }
  std::ranges::sort(made.ends);
  made.ends.erase(std::ranges::unique(made.ends).begin(), made.ends.end());
  return made.size() <= kMaxSegments ? made : MaskSegments();
}

}  // namespace xpud::kernels
