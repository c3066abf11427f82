// Creates tensors on the device, and resizes their storages.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "sdk/torch/csrc/runtime/runtime.h"

namespace xpud::shim {

// The keys of tensors on the device.
inline constexpr c10::DispatchKeySet kTensorKeys(c10::DispatchKey::PrivateUse1);

// Makes `device` current during one allocation.
class AllocationDevice {
 public:
  explicit AllocationDevice(std::optional<c10::Device> device) : old_(Runtime::CurrentDevice()) {
    if (device.has_value() && device->has_index() && device->index() != old_) {
      TORCH_CHECK(device->index() < Runtime::Get().device_count(), "XPUD: invalid device ordinal ",
                  static_cast<int>(device->index()), "; there are ", Runtime::Get().device_count(),
                  " devices");
      Runtime::SetCurrentDevice(device->index());
    }
  }
  ~AllocationDevice() { Runtime::SetCurrentDevice(old_); }
  AllocationDevice(const AllocationDevice&) = delete;
  AllocationDevice& operator=(const AllocationDevice&) = delete;

 private:
  int old_;
};

// Returns an uninitialised row-major tensor, allocated on the current stream.
at::Tensor MakeEmpty(c10::IntArrayRef sizes, at::ScalarType type, c10::Device device);

// Gives `storage` a new buffer of `bytes` and copies as much of the old contents as fits.
void ResizeStorage(c10::StorageImpl& storage, size_t bytes);

}  // namespace xpud::shim
