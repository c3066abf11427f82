#include "sdk/torch/csrc/pinned.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "sdk/torch/csrc/errors.h"
#include "sdk/torch/csrc/runtime.h"

namespace xpud::shim {
namespace {

void FreePinned(void* buffer) { delete static_cast<HostBuffer*>(buffer); }

// Frees, as the storages of tensors do, whenever it likes: what commands still use is kept until they are
// done.
class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    Runtime& runtime = Runtime::Get();
    if (bytes == 0 || runtime.is_null()) return c10::GetCPUAllocator()->allocate(bytes);
    auto buffer = Allocate(runtime, bytes);
    if (buffer.ok()) {
      auto owned = std::make_unique<HostBuffer>(*std::move(buffer));
      void* const address = owned->bytes().data();
      return {address, owned.release(), &FreePinned, c10::DeviceType::CPU};
    }
    if (absl::IsCancelled(buffer.status()) || absl::IsUnavailable(buffer.status())) Throw(buffer.status());
    TORCH_WARN_ONCE("XPUD: memory cannot be pinned, so it is ordinary memory: ",
                    std::string(buffer.status().message()));
    return c10::GetCPUAllocator()->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    std::memcpy(target, source, bytes);
  }

 private:
  static absl::StatusOr<HostBuffer> Allocate(Runtime& runtime, size_t bytes) {
    const WaitScope scope;
    return runtime.session()->AllocateHost(bytes);
  }
};

}  // namespace

// Asks the driver, if it is loaded: PyTorch's own questions would initialise CUDA, after which no process can
// be forked that is to use it.
bool UsesCuda() {
  if (!at::detail::getCUDAHooks().isBuilt()) return false;
  using GetState = int (*)(int device, unsigned* flags, int* active);
  static std::atomic<GetState> get_state{nullptr};
  if (get_state.load() == nullptr) {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == nullptr) return false;
    get_state.store(reinterpret_cast<GetState>(::dlsym(driver, "cuDevicePrimaryCtxGetState")));
    if (get_state.load() == nullptr) return false;
  }
  unsigned flags = 0;
  int active = 0;
  // Fails after the last one, and in a forked child, which cannot use CUDA.
  for (int device = 0; get_state.load()(device, &flags, &active) == 0; ++device) {
    if (active != 0) return true;
  }
  return false;
}

c10::Allocator* PinnedAllocator() {
  if (!Runtime::IsConnected() && UsesCuda()) return at::detail::getCUDAHooks().getPinnedMemoryAllocator();
  static auto* const allocator = new Allocator;
  return allocator;
}

bool IsPinned(const void* address) {
  if (Runtime::IsConnected()) {
    Runtime& runtime = Runtime::Get();
    if (!runtime.is_null() && runtime.session()->IsHostMemory(address)) return true;
  }
  return UsesCuda() && at::detail::getCUDAHooks().isPinnedPtr(address);
}

}  // namespace xpud::shim
