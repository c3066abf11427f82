// Sends one command with tensors as they are; what operators registered by hand have in common.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "proto/ops/named_call.h"
#include "sdk/torch/csrc/call/operand.h"

namespace xpud::shim {

using OptionalTensor = std::optional<at::Tensor>;

inline bool IsGiven(const OptionalTensor& tensor) { return tensor.has_value() && tensor->defined(); }

// Returns whether `tensor` is on a device, of a dtype in `types`, and of a rank that the wire has.
inline bool IsServed(const at::Tensor& tensor, ops::DTypeSet types) {
  return tensor.defined() && IsOnDevice(tensor) && IsSupported(tensor.scalar_type(), types) &&
         tensor.dim() <= ops::kMaxRank;
}

// Executes a call of `row`, whose family has that struct, on the device of `like`, whose dtype is the compute
// type.
template <template <typename> class Named>
void Send(const ops::Row& row, const Named<TensorRef>& call, const at::Tensor& like) {
  const ops::NamedOpCall<Named> named(call);
  Execute(named.Of(row, *ToDType(like.scalar_type())), DeviceIndexOf(like));
}

}  // namespace xpud::shim
