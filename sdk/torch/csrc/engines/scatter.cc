// All writes are one row family: scatter along a dimension, in the order of the index or in any order.
#include "sdk/torch/csrc/engines/scatter.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>

#include <array>

#include "proto/ops/families/scatter.h"
#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/list_command.h"
#include "sdk/torch/csrc/runtime/errors.h"

namespace xpud::shim {

using at::Tensor;

namespace {

const ops::Row& RowOf(Combination how, Order order) {
  static const std::array<const ops::Row*, 3> any_order = {&ops::RowOf("xpud::scatter_any_order"),
                                                           &ops::RowOf("xpud::scatter_add_any_order"),
                                                           &ops::RowOf("xpud::scatter_mul_any_order")};
  const auto number = static_cast<size_t>(how);
  if (order == Order::kAny && number < any_order.size() && IsKnown(*any_order[number]) &&
      !at::globalContext().deterministicAlgorithms())
    return *any_order[number];
  static const std::array<const ops::Row*, 5> rows = {
      &ops::RowOf("xpud::scatter"), &ops::RowOf("xpud::scatter_add"), &ops::RowOf("xpud::scatter_mul"),
      &ops::RowOf("xpud::scatter_max"), &ops::RowOf("xpud::scatter_min")};
  return *rows[number];
}

void SendScatter(Combination how, const Tensor& out, int64_t dim, const Tensor& index,
                 const TensorRef& source, Order order) {
  if (index.numel() == 0) return;
  ThrowUnlessIndexable(out.size(dim), dim);
  const bool rounds = at::isReducedFloatingType(out.scalar_type()) &&
                      (how == Combination::kAdd || how == Combination::kMultiply);
  const Tensor target = rounds ? out.to(at::kFloat) : out;
  Send(RowOf(how, order),
       ops::ScatterCall<TensorRef>{
           .out = Describe(target), .index = Describe(index), .source = source, .dim = dim},
       target);
  if (rounds) out.copy_(target);
}

}  // namespace

void Scatter(Combination how, const Tensor& out, int64_t dim, const Tensor& index, const Tensor& source,
             Order order) {
  SendScatter(how, out, dim, index, Describe(source), order);
}

void Scatter(Combination how, const Tensor& out, int64_t dim, const Tensor& index, const at::Scalar& number,
             Order order) {
  SendScatter(how, out, dim, index, *ToImmediate(number), order);
}

Tensor IndexAlong(const Tensor& vector, int64_t dim, c10::IntArrayRef sizes) {
  c10::SmallVector<int64_t, ops::kMaxRank> strides(sizes.size(), 0);
  strides[static_cast<size_t>(dim)] = vector.dim() == 0 ? 1 : vector.stride(0);
  return vector.as_strided(sizes, strides);
}

void CheckOverlaps(const Tensor& self, std::initializer_list<const Tensor*> others) {
  at::assert_no_internal_overlap(self);
  for (const Tensor* const other : others) {
    CheckSameDevice(self.device(), other->device());
    at::assert_no_overlap(self, *other);
  }
}

void WarnOfExpanded(const Tensor& self, const char* op, const char* use) {
  if (at::has_internal_overlap(self) != at::MemOverlap::Yes) return;
  TORCH_WARN(
      "Use of ", op,
      " on expanded tensors is deprecated. Please clone() the tensor before performing this operation. "
      "This also applies to advanced indexing e.g. ",
      use);
}

}  // namespace xpud::shim
