// Makes and resizes tensors on the device.
#pragma once

#include <ATen/core/Tensor.h>

namespace xpud::shim {

// An uninitialised row-major tensor; allocates in the current stream.
at::Tensor MakeEmpty(c10::IntArrayRef sizes, at::ScalarType type, c10::Device device);

// Gives `storage` a new buffer of `bytes`, keeping what fits of the old contents.
void ResizeStorage(c10::StorageImpl& storage, size_t bytes);

}  // namespace xpud::shim
