// Validates a call: counts, attributes, types and shapes, by its row and family. The caller checks bounds
// against buffers. Thread-safe. Does not allocate for a valid call.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "proto/ops/family.h"

namespace xpud::ops {

// Returns InvalidArgument, or Unimplemented if the op does not support a type. The message says what was
// found and what is allowed.
absl::Status CheckCall(const Call& call);

// Returns the call as shown in errors: "add.Tensor(float32[2, 3], float32[3])".
std::string Describe(const Call& call);
// Returns a hash of the text of Describe. Equal texts have equal hashes; different texts may collide.
uint64_t WordingOf(const Call& call);

}  // namespace xpud::ops
