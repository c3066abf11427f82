// Implements PyTorch's generic accelerator hooks.
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "sdk/torch/csrc/runtime/allocator.h"
#include "sdk/torch/csrc/runtime/generator.h"
#include "sdk/torch/csrc/runtime/pinned.h"
#include "sdk/torch/csrc/runtime/runtime.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {
namespace {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return Runtime::DeviceCountOrZero() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return Runtime::IsConnected(); }
  // PyTorch calls this before it pins memory, for example. A process that pins memory for CUDA does not
  // connect.
  void init() const override {
    if (Runtime::IsConnected() || !UsesCuda()) Runtime::Get();
  }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(Runtime::DeviceCountOrZero());
  }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    const int count = Runtime::Get().device_count();
    TORCH_CHECK(device >= 0 && device < count, "The device index is out of range. It must be in [0, ", count,
                "), but got ", static_cast<int>(device), ".");
    Runtime::SetCurrentDevice(device);
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(Runtime::CurrentDevice());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex old = getCurrentDevice();
    if (device >= 0 && device != old) setCurrentDevice(device);
    return old;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return DefaultGenerator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override { return NewGenerator(device); }

  bool isPinnedPtr(const void* address) const override { return IsPinned(address); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return PinnedAllocator(); }
  at::Device getDeviceFromPtr(void*) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "XPUD: device memory has no addresses");
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    ResizeStorage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

[[maybe_unused]] const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace
}  // namespace xpud::shim
