// Building blocks for the checks of families. Each returns InvalidArgument with what was found and what is
// needed; `role` names the operand in the message. Thread-safe.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/ops/operand.h"

namespace xpud::ops {

std::string Describe(const Operand& operand);
absl::Status Invalid(std::string_view what);

absl::Status NeedTensor(const Operand& operand, const char* role);
absl::Status NeedRank(const Operand& operand, const char* role, int rank);
absl::Status NeedSizes(const Operand& operand, const char* role, std::initializer_list<int64_t> sizes);
absl::Status NeedType(const Operand& operand, const char* role, DTypeSet types);
absl::Status NeedSameType(const Operand& operand, const char* role, DType type);
absl::Status NeedSameSizes(const Operand& operand, const Operand& like, const char* role);
absl::Status NeedBroadcastTo(const Operand& operand, const Operand& out, const char* role);
// Returns `dim`, which must be a dimension of `operand`.
absl::StatusOr<int> DimensionOf(int64_t dim, const Operand& operand);

// Inline because ranks are small: std::equal would be a call.
inline bool HasSameSizes(const Operand& a, const Operand& b) {
  bool same = a.rank == b.rank;
  for (int d = 0; same && d < a.rank; ++d) same = a.sizes[d] == b.sizes[d];
  return same;
}

// Returns true if the ranks are equal and each size is equal or 1. (An expanded dimension has the output's
// size and stride 0.)
inline bool BroadcastsTo(const Operand& operand, const Operand& out) {
  bool fits = operand.rank == out.rank;
  for (int d = 0; fits && d < out.rank; ++d) fits = operand.sizes[d] == out.sizes[d] || operand.sizes[d] == 1;
  return fits;
}

// Sets an output's type and sizes.
void SetOutput(Operand& out, DType dtype, std::initializer_list<int64_t> sizes);
void SetOutputLike(Operand& out, const Operand& like);

}  // namespace xpud::ops
