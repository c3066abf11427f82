// Checks that a call means something: counts, types and shapes as its row and family say. Bounds against
// buffers are checked before (session.cc). After this, a kernel cannot leave its operands. Any thread; no
// allocation when all is well.
#pragma once

#include "absl/status/status.h"
#include "kernels/api/op_call.h"

namespace xpud::session {

// InvalidArgument with what was found and what is allowed.
absl::Status CheckOp(const kernels::OpCall& call);

// "add.Tensor(float32[2, 3], float32[3])": the call as people read it in errors.
std::string Describe(const kernels::OpCall& call);
// The same for calls that Describe puts into the same words (others have another one, but for chance).
uint64_t WordingOf(const kernels::OpCall& call);

}  // namespace xpud::session
