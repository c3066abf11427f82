// What an op is called with (TensorRef, OpCall, BufferHandle): shared with the wire's encoder.
#pragma once

#include "proto/ops/op_call.h"  // IWYU pragma: export
