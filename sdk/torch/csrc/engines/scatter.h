// Writes and reductions at positions along a dimension, in place. Others build on it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <initializer_list>

#include "sdk/torch/csrc/call/operand.h"

namespace xpud::shim {

// How an element and what arrives at it are combined.
enum class Combination { kPut, kAdd, kMultiply, kMax, kMin };

// kAny: a GPU may combine in another order each time, where PyTorch's GPUs do, too. (Not with
// torch.use_deterministic_algorithms.)
enum class Order { kOfIndex, kAny };

// Combines `out` with `source` at `index` along `dim`. `source` has the sizes of `index`, or is a number.
// 16-bit sums and products are computed in f32 and rounded once. REQUIRES: shapes as for scatter; `out` and
// `index` have at least one dimension.
void Scatter(Combination how, const at::Tensor& out, int64_t dim, const at::Tensor& index,
             const at::Tensor& source, Order order = Order::kOfIndex);
void Scatter(Combination how, const at::Tensor& out, int64_t dim, const at::Tensor& index,
             const at::Scalar& number, Order order = Order::kOfIndex);

// Returns a vector as an index for tensors of `sizes`, the same in all dimensions except `dim`.
at::Tensor IndexAlong(const at::Tensor& vector, int64_t dim, c10::IntArrayRef sizes);

// Checks of operators that write at indices: `self`, which is written, has no two elements in one place, and
// shares no memory with the others, which are on its device.
void CheckOverlaps(const at::Tensor& self, std::initializer_list<const at::Tensor*> others);
// Warns if `op` writes an expanded tensor. `use` is advanced indexing that does the same.
void WarnOfExpanded(const at::Tensor& self, const char* op, const char* use);

}  // namespace xpud::shim
