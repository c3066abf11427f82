// Shared by operators whose outputs read windows of the input's last dimensions: pooling, padding,
// resampling.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <string>

#include "sdk/torch/csrc/call/command.h"

namespace xpud::shim {

// Returns a tensor without memory, with the layout and dtype of `tensor`. ATen's kernels for such tensors
// check arguments and choose the results' sizes and strides.
at::Tensor MetaOf(const at::Tensor& tensor);
// An operator of ATen, and its function that checks arguments and makes results without memory. Two arguments
// of a template. (Through the dispatcher, Python's decompositions would run instead.)
#define XPUD_ATEN(name) at::_ops::name, [](const auto&... arguments) { return at::meta::name(arguments...); }

// Returns an uninitialised tensor like `meta` on the device of `like`.
at::Tensor EmptyAs(const at::Tensor& meta, const at::Tensor& like);
// Returns an uninitialised tensor with the sizes of `self`, the last ones replaced by `spatial`. With a batch
// dimension, it has the memory format of `self`.
at::Tensor EmptySpatial(const at::Tensor& self, c10::IntArrayRef spatial);

// Returns whether `self` has `spatial` dimensions after one of channels and perhaps a batch dimension, and
// only the batch may be empty.
bool HasPlanes(const at::Tensor& self, int64_t spatial);
// Returns whether both have the same sizes but for the last `spatial` ones.
bool HasSamePlanes(const at::Tensor& a, const at::Tensor& b, int64_t spatial);

// Returns element `d` of an argument that has one element for all dimensions, or one for each.
inline int64_t ElementOf(c10::IntArrayRef list, size_t d) { return list.size() == 1 ? list[0] : list[d]; }

// Registers `kernel`, which may be an instance of a template.
template <auto kernel>
void Implement(torch::Library& library, const std::string& name) {
  library.impl(name.c_str(),
               c10::CompileTimeFunctionPointer<std::remove_pointer_t<decltype(kernel)>, kernel>());
}

}  // namespace xpud::shim
