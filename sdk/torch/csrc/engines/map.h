// Runs rows of family kMap with ATen's shapes, strides and type promotion. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <optional>
#include <span>

#include "proto/ops/op_table.h"
#include "sdk/torch/csrc/call/operand.h"

namespace xpud::shim {

// One input of a map: a scalar or a tensor. The tensor is on the device, or a CPU tensor without dimensions,
// whose value is sent in the command.
struct MapInput {
  MapInput() = default;
  MapInput(const at::Tensor& t) : tensor(&t) {}  // NOLINT: a tensor is an input
  // `promotes`: the scalar takes part in type promotion (`other` does, `value` does not).
  MapInput(const c10::Scalar& s, bool promotes_type) : scalar(s), promotes(promotes_type) {}
  // The factor of `other` in add, sub and rsub. It must fit the dtype to which the other inputs promote.
  static MapInput Alpha(const c10::Scalar& s) {
    MapInput input(s, false);
    input.is_alpha = true;
    return input;
  }

  const at::Tensor* tensor = nullptr;
  c10::Scalar scalar;
  bool promotes = true;
  bool is_alpha = false;
};

// Throws RuntimeError if `value` is out of range for `type`, as ATen does for the scalars of fill, where,
// clamp and masked_fill. Fractions are truncated, and -1 is accepted as an unsigned type's largest value.
void CheckFits(const c10::Scalar& value, at::ScalarType type);

// Computes `row` into `out`. An undefined `out` is allocated; a defined one is resized or refused by ATen's
// rules. Returns false, without sending anything, if the device does not support the dtypes or ranks; the
// caller then falls back.
bool RunMap(const ops::Row& row, std::span<const MapInput> inputs, at::Tensor& out);

// Like RunMap, for contiguous tensors of one shape and dtype, and scalars that do not change the dtype. Runs
// one pass over flat memory. Returns false if the operands are not of this kind.
bool RunFlatMap(const ops::Row& row, std::span<const MapInput> inputs, at::Tensor& out);

// Returns true if `row` subtracts and the input is bool, which ATen refuses. RunMap throws in that case.
bool SubtractsBool(const ops::Row& row, const MapInput& input);

// Describes a number, or a tensor without dimensions on the device or the CPU, as an input beside tensors
// like `like`. Returns nullopt if it changes their dtype, or if the wire lacks its own.
std::optional<TensorRef> ScalarInput(const MapInput& input, const at::Tensor& like);

// Computes `row` over the shape of `outs[0]`. The operands must have the right dtypes: there is no promotion
// and no check for overlap. Inputs are broadcast. Throws if the device does not support the call.
void LaunchMap(const ops::Row& row, ops::DType compute, std::span<const at::Tensor> outs,
               std::span<const MapInput> inputs);

}  // namespace xpud::shim
