// Creates and resizes tensors on the device.
#pragma once

#include <ATen/core/Tensor.h>

namespace xpud::shim {

// Returns an uninitialised row-major tensor, allocated on the current stream.
at::Tensor MakeEmpty(c10::IntArrayRef sizes, at::ScalarType type, c10::Device device);

// Gives `storage` a new buffer of `bytes` and copies as much of the old contents as fits.
void ResizeStorage(c10::StorageImpl& storage, size_t bytes);

}  // namespace xpud::shim
