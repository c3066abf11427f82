// Sends one command with tensors as they are; what operators registered by hand have in common.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <optional>
#include <span>

#include "sdk/torch/csrc/operand.h"

namespace xpud::shim {

using OptionalTensor = std::optional<at::Tensor>;

inline bool IsGiven(const OptionalTensor& tensor) { return tensor.has_value() && tensor->defined(); }

// Returns whether `tensor` is on a device, of a dtype in `types`, and of a rank that the wire has.
inline bool IsServed(const at::Tensor& tensor, ops::DTypeSet types) {
  return tensor.defined() && IsOnDevice(tensor) && IsSupported(tensor.scalar_type(), types) &&
         tensor.dim() <= ops::kMaxRank;
}

// Executes `row` on the device of `like`, whose dtype is the compute type.
void Send(const ops::Row& row, std::initializer_list<TensorRef> outputs,
          std::initializer_list<TensorRef> inputs, std::span<const ops::Number> attributes,
          const at::Tensor& like);
inline void Send(const ops::Row& row, std::initializer_list<TensorRef> outputs,
                 std::initializer_list<TensorRef> inputs, std::initializer_list<ops::Number> attributes,
                 const at::Tensor& like) {
  Send(row, outputs, inputs, std::span(attributes.begin(), attributes.size()), like);
}

}  // namespace xpud::shim
