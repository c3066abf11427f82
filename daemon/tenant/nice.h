// How far a session has lowered itself among those of its tenant. A session of nice n + 1 gets a fifth less
// than one of nice n beside it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace xpud {

inline constexpr uint32_t kMaxNice = 19;
inline constexpr uint32_t kSessionWeight = 10'000;  // of nice 0

constexpr uint32_t WeightOfNice(uint32_t nice) {
  double weight = kSessionWeight;
  for (uint32_t n = 0; n < std::min(nice, kMaxNice); ++n) weight *= 0.8;
  return static_cast<uint32_t>(weight);
}

// Returns InvalidArgument if `wanted` is not allowed, or, unless `may_raise`, is less than `now`.
inline absl::Status CheckNice(uint32_t now, uint32_t wanted, bool may_raise) {
  if (wanted > kMaxNice)
    return absl::InvalidArgumentError(absl::StrCat("nice ", wanted, " is not allowed; use 0 to ", kMaxNice));
  if (may_raise || wanted >= now) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("nice ", wanted, " would raise the session, whose nice is ",
                                                 now, "; it can only lower itself: use ", now, " to ",
                                                 kMaxNice));
}

}  // namespace xpud
