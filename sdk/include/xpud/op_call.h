// The operands of a call (TensorRef, OpCall, BufferHandle), shared with the wire's encoder.
#pragma once

#include "proto/ops/op_call.h"  // IWYU pragma: export
