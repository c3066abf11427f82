#include "proto/loops/call_check.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/loops/bounds.h"

namespace xpud::loops {
namespace {

// In additions. Rough: it bounds the work of a call.
constexpr double kSpecialCost = 64, kTranscendentalCost = 8, kMemoryCost = 2, kSearchCost = 64,
                 kRandomCost = 32;

double CostOf(const Statement& s) {
  switch (s.kind) {
    case StatementKind::kCall:
      if (s.function >= Function::digamma) return kSpecialCost;
      return s.function >= Function::sqrt && s.function <= Function::sigmoid ? kTranscendentalCost : 1;
    case StatementKind::kLoad:
    case StatementKind::kStore:
      return kMemoryCost;
    case StatementKind::kAtomicAdd:
      return 4 * kMemoryCost;
    case StatementKind::kSearch:
      return kSearchCost;
    case StatementKind::kRandom:
      return kRandomCost;
    default:
      return 1;
  }
}

// Whether the `count` elements from index on, one if that is null, are inside of `elements`.
bool IsInside(const Interval& index, const Interval* count, int64_t elements) {
  if (!index.known || index.low < 0 || index.high >= elements) return false;
  if (count == nullptr) return true;
  return count->known && count->low >= 0 && count->high <= elements - index.high;
}

// What masks say of index expressions: comparisons of two that all must hold. Others are not used, nor are
// more than some, so that hostile masks cost little.
class MaskLimits {
 public:
  MaskLimits(const Body& body, const BodyInfo& info, const Bounds& bounds)
      : body_(body), info_(info), bounds_(bounds) {}

  // For what runs under a mask: its own and those of the masks around it. Until the next call.
  std::span<const Bounds::Limit> Of(uint32_t mask) {
    if (mask == mask_) return limits_;
    mask_ = mask;
    limits_.clear();
    std::vector<uint32_t> conditions;
    const auto add = [&](uint32_t condition) {
      const bool is_new = std::ranges::find(conditions, condition) == conditions.end();
      if (condition != kNone && is_new && conditions.size() < kMaxConditions) conditions.push_back(condition);
    };
    for (uint32_t m = mask; m != kNone && conditions.size() < kMaxConditions; m = info_.statements[m].block)
      add(body_.statements[m].values[0]);
    for (size_t i = 0; i < conditions.size(); ++i) {
      const Statement& s = body_.statements[conditions[i]];
      if (s.kind != StatementKind::kCall) continue;
      if (s.function == Function::logical_and || s.function == Function::bitwise_and) {
        add(s.values[0]);
        add(s.values[1]);
      } else if (s.type == DType::kInt64) {
        AddComparison(s);
      }
    }
    return limits_;
  }

 private:
  static constexpr size_t kMaxConditions = 16;
  static constexpr int64_t kLowest = std::numeric_limits<int64_t>::min(),
                           kHighest = std::numeric_limits<int64_t>::max();
  struct Side {
    uint32_t node = kNone;  // none of a constant
    Interval interval = {};
  };

  Side SideOf(uint32_t value) const {
    const Statement& s = body_.statements[value];
    if (s.kind == StatementKind::kConstant && s.type == DType::kInt64)
      return {kNone, {true, s.integer, s.integer}};
    if (s.kind == StatementKind::kIndexValue) return {s.index, bounds_.Of(s.index)};
    return {};
  }

  void AddComparison(const Statement& s) {
    const bool is_less = s.function == Function::lt, is_more = s.function == Function::gt,
               is_equal = s.function == Function::eq;
    const bool is_at_most = is_less || s.function == Function::le,
               is_at_least = is_more || s.function == Function::ge;
    if (!is_at_most && !is_at_least && !is_equal) return;
    const Side a = SideOf(s.values[0]), b = SideOf(s.values[1]);
    if (!a.interval.known || !b.interval.known) return;
    const auto at_most = [&](const Side& x, const Side& y) {  // x <= y - step
      const int64_t step = is_equal || (!is_less && !is_more) ? 0 : 1;
      int64_t high = 0, low = 0;
      if (x.node != kNone && !__builtin_sub_overflow(y.interval.high, step, &high))
        limits_.push_back({x.node, kLowest, high});
      if (y.node != kNone && !__builtin_add_overflow(x.interval.low, step, &low))
        limits_.push_back({y.node, low, kHighest});
    };
    if (is_at_most || is_equal) at_most(a, b);
    if (is_at_least || is_equal) at_most(b, a);
  }

  const Body& body_;
  const BodyInfo& info_;
  const Bounds& bounds_;
  uint32_t mask_ = kNone;
  std::vector<Bounds::Limit> limits_;  // of mask_
};

absl::StatusOr<std::vector<int64_t>> ExtentsOf(const Body& body, const Bounds& bounds, size_t number) {
  std::vector<int64_t> extents;
  __int128 positions = 1;
  for (size_t d = 0; d < body.extents.size(); ++d) {
    const Interval extent = bounds.Extent(d);
    if (!extent.known || extent.low < 0)
      return absl::InvalidArgumentError(
          extent.known
              ? absl::StrCat("body ", number, ": dimension ", d, " has ", extent.low, " positions")
              : absl::StrCat("body ", number, ": dimension ", d, " has no 64-bit number of positions"));
    extents.push_back(extent.low);
    // An empty dimension counts as one, because the others may be gone through without it.
    positions *= std::max<int64_t>(extent.low, 1);
    if (positions > kMaxPositions)
      return absl::InvalidArgumentError(
          absl::StrCat("body ", number, ": more than ", kMaxPositions, " positions"));
  }
  return extents;
}

// Divisors are expressions of constants and sizes.
absl::Status CheckDivisors(const Body& body, const Bounds& bounds, size_t number) {
  for (size_t i = 0; i < body.indices.size(); ++i) {
    const IndexNode& node = body.indices[i];
    if (node.op != IndexOp::kFloorDiv && node.op != IndexOp::kMod) continue;
    const Interval divisor = bounds.Of(node.b);
    if (divisor.known && divisor.low >= 1) continue;
    const std::string found = divisor.known ? absl::StrCat(divisor.low) : "no 64-bit number";
    return absl::InvalidArgumentError(
        absl::StrCat("body ", number, ": index node ", i, " divides by ", found, ", at least 1 is needed"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CallInfo> CheckCall(const Kernel& kernel, const KernelInfo& info,
                                   std::span<const int64_t> sizes, std::span<const int64_t> elements) {
  if (sizes.size() != kernel.sizes || elements.size() != kernel.operands.size())
    return absl::InvalidArgumentError(absl::StrCat("a loop kernel of ", kernel.operands.size(),
                                                   " operands and ", kernel.sizes, " sizes was called with ",
                                                   elements.size(), " and ", sizes.size()));
  CallInfo call;
  for (size_t b = 0; b < kernel.bodies.size(); ++b) {
    const Body& body = kernel.bodies[b];
    const Bounds bounds(body, sizes);
    MaskLimits mask_limits(body, info.bodies[b], bounds);
    BodyCall made;
    ASSIGN_OR_RETURN(made.extents, ExtentsOf(body, bounds, b));
    double outer = 1, all = 1;
    for (size_t d = 0; d < made.extents.size(); ++d) {
      all *= static_cast<double>(made.extents[d]);
      if (d < body.outer) outer *= static_cast<double>(made.extents[d]);
    }
    // Statements outside of the reduced dimensions run where these are empty, too.
    const bool runs = outer > 0;
    if (runs) RETURN_IF_ERROR(CheckDivisors(body, bounds, b));
    for (size_t i = 0; i < body.statements.size(); ++i) {
      const Statement& s = body.statements[i];
      const bool is_inner = info.bodies[b].statements[i].is_inner || s.kind == StatementKind::kReduce;
      call.operations += (is_inner ? all : outer) * CostOf(s);
      bool guarded = false;
      if (s.operand != kNone && s.index != kNone) {
        const Interval count = s.bound == kNone ? Interval{} : bounds.Of(s.bound);
        const auto is_inside = [&](const Interval& index) {
          return IsInside(index, s.bound == kNone ? nullptr : &count, elements[s.operand]);
        };
        guarded = runs && !is_inside(bounds.Of(s.index));
        const uint32_t mask = info.bodies[b].statements[i].block;
        if (guarded && mask != kNone) guarded = !is_inside(bounds.Of(s.index, mask_limits.Of(mask)));
      }
      made.guarded.push_back(guarded);
    }
    for (uint32_t i = 0; i < body.indices.size(); ++i) {
      const Interval value = runs ? bounds.Of(i) : Interval{};
      made.is_exact.push_back(value.known);
      made.is_natural.push_back(value.known && value.low >= 0);
    }
    call.bodies.push_back(std::move(made));
  }
  return call;
}

}  // namespace xpud::loops
