// Checks that a call means something: counts, attributes, types and shapes as its row and family say. Bounds
// against buffers are the caller's to check. Any thread; no allocation when all is well.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "proto/ops/family.h"

namespace xpud::ops {

// InvalidArgument, or Unimplemented for a type that the op does not take, with what was found and what is
// allowed.
absl::Status CheckCall(const Call& call);

// "add.Tensor(float32[2, 3], float32[3])": the call as people read it in errors.
std::string Describe(const Call& call);
// Equal for calls that Describe puts into the same words; unequal for others, but for chance.
uint64_t WordingOf(const Call& call);

}  // namespace xpud::ops
