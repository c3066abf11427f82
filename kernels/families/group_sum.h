// Sums over the lanes of a group, in an order that is always the same. Plain functions; one compile.
#pragma once

#include "kernels/compiler/emitter.h"

namespace xpud::kernels {

// The sum of every lane's `value`, known to all lanes. All lanes must get here. On the host a group is one
// lane: `value` itself.
llvm::Value* SumOverGroup(Emitter& emitter, llvm::Value* value);

}  // namespace xpud::kernels
