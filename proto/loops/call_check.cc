#include "proto/loops/call_check.h"

#include <algorithm>
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
        guarded =
            runs && !IsInside(bounds.Of(s.index), s.bound == kNone ? nullptr : &count, elements[s.operand]);
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
