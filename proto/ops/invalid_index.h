// Numbers that stand for an index out of range, or for a check that failed. Before a kernel finds that an
// index is out of range, the index may have been counted from the end and combined with those of other
// dimensions. So `xpud::index_position` (rows.inc) replaces it by a number that is out of range in every
// dimension and tells which index of which dimension it was. Kernels report 56 bits of it
// (kernels/api/op_call.h), and the daemon describes them to the client.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace xpud::ops {

// In place of a dimension.
inline constexpr int kNoDimension = 14, kFailedCheck = 15;

// Returns the number to which the index of a dimension is added: attribute `d` of `xpud::index_position`. For
// kFailedCheck, the check's number is added. REQUIRES: 0 <= dim <= kFailedCheck.
constexpr int64_t InvalidIndexBase(int dim) {
  return -(int64_t{1} << 55) + (int64_t{dim} << 50) + (int64_t{1} << 49);
}

// Returns "index 7 is out of range for dimension 0 in COMMAND", "index 7 is out of range in COMMAND" or
// "check 3 failed in COMMAND". `value` was reported by a kernel of that command.
std::string DescribeInvalidIndex(int64_t value, const std::string& command);
// Returns the number of the check whose failure the text of an error describes, if it does.
std::optional<int64_t> FailedCheckOf(std::string_view message);

}  // namespace xpud::ops
