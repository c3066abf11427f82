// Runs rows of family kReduce. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string_view>
#include <vector>

#include "proto/ops/op_table.h"
#include "sdk/torch/csrc/call/operand.h"

namespace xpud::shim {

// Reduces dimensions `dims` (non-negative; all, if empty) of `self` into new row-major tensors of dtype
// `out_type`, one for each output of the row.
// A joint reduction has several inputs: those after the first may have dimensions of size 1.
std::vector<at::Tensor> LaunchReductions(const ops::Row& row, c10::ArrayRef<at::Tensor> inputs,
                                         c10::IntArrayRef dims, bool keepdim, ops::DType compute,
                                         at::ScalarType out_type,
                                         std::span<const ops::Number> attributes = {});
// Returns the only output.
at::Tensor LaunchReduce(const ops::Row& row, const at::Tensor& self, c10::IntArrayRef dims, bool keepdim,
                        ops::DType compute, at::ScalarType out_type,
                        std::span<const ops::Number> attributes = {});

// Gives ATen's warning if `op` (std or a relative) reduced `self` to `out` without a degree of freedom.
void WarnAboutFreedom(std::string_view op, const at::Tensor& self, const at::Tensor& out, double correction);

}  // namespace xpud::shim
