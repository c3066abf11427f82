// Runs rows of family kMap with ATen's shapes, strides and type promotion. Any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <span>

#include "proto/ops/op_table.h"
#include "sdk/torch/csrc/operand.h"

namespace xpud::shim {

// One input of a map: a tensor (ours, or a CPU tensor without dimensions, which travels by value) or a
// scalar.
struct MapInput {
  MapInput() = default;
  MapInput(const at::Tensor& t) : tensor(&t) {}  // NOLINT: a tensor is an input
  // `promotes`: the scalar takes part in type promotion, as `other` does and `value` does not.
  MapInput(const c10::Scalar& s, bool promotes_type) : scalar(s), promotes(promotes_type) {}
  // The factor of `other` in add, sub and rsub: it must fit the type that the others promote to.
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

// Throws RuntimeError where `value` is outside of what `type` can hold, as ATen does for the scalars of fill,
// where, clamp and masked_fill. Fractions are dropped, and -1 is an unsigned type's largest value.
void CheckFits(const c10::Scalar& value, at::ScalarType type);

// Computes `row` into `out`; an undefined `out` is made, a defined one is resized, or refused, by ATen's
// rules. False, with nothing sent, when the device cannot do it (types, ranks): the caller falls back.
bool RunMap(const ops::Row& row, std::span<const MapInput> inputs, at::Tensor& out);

// As RunMap for tensors of one shape and type, without gaps, and scalars that do not change the type: one
// pass over flat memory. False when the operands are not so.
bool RunFlatMap(const ops::Row& row, std::span<const MapInput> inputs, at::Tensor& out);

// Computes `row` over the shape of `outs[0]` with operands of the stated types: no promotion, no checks of
// overlap. Inputs broadcast. Throws when the device cannot.
void LaunchMap(const ops::Row& row, ops::DType compute, std::span<const at::Tensor> outs,
               std::span<const MapInput> inputs);

}  // namespace xpud::shim
