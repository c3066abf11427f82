// What is checked of a call of a loop kernel with its real sizes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/loops/check.h"
#include "proto/loops/kernel.h"

namespace xpud::loops {

struct BodyCall {
  std::vector<int64_t> extents;
  // Of each statement that accesses memory: its index is not proved to be inside, so the kernel must check it
  // where the statement runs. What the masks around it ensure of index values counts. An indirect index is
  // always checked.
  std::vector<bool> guarded;
  // Of each index node: neither it nor what it is made of can leave 64 bits; it is not negative.
  std::vector<bool> is_exact, is_natural;
};

struct CallInfo {
  std::vector<BodyCall> bodies;
  double operations = 0;  // statements that run, where a function counts for what it costs
};

// `sizes` are the call's integer arguments; `elements` has how many each operand has from its first one on
// (scalars: 1). Returns InvalidArgument if their number is wrong, or if an extent is negative or no 64-bit
// number, or all of them together are more than kMaxPositions.
inline constexpr int64_t kMaxPositions = int64_t{1} << 48;
absl::StatusOr<CallInfo> CheckCall(const Kernel& kernel, const KernelInfo& info,
                                   std::span<const int64_t> sizes, std::span<const int64_t> elements);

}  // namespace xpud::loops
