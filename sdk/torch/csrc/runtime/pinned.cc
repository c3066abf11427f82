#include "sdk/torch/csrc/runtime/pinned.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "proto/base/mutex.h"
#include "sdk/torch/csrc/runtime/errors.h"
#include "sdk/torch/csrc/runtime/runtime.h"

namespace xpud::shim {
namespace {

// Counts pinned memory, current and total.
class Statistics {
 public:
  void Add(size_t bytes) {
    MutexLock lock(mutex_);
    stats_.allocations.increase(1);
    stats_.allocated_bytes.increase(bytes);
    ++stats_.num_host_alloc;
  }
  void Remove(size_t bytes) {
    MutexLock lock(mutex_);
    stats_.allocations.decrease(1);
    stats_.allocated_bytes.decrease(bytes);
    ++stats_.num_host_free;
  }
  // Nothing is cached here, so reserved memory is memory in use.
  at::HostStats Get() {
    MutexLock lock(mutex_);
    at::HostStats stats = stats_;
    stats.active_requests = stats.allocations;
    stats.active_bytes = stats.allocated_bytes;
    return stats;
  }
  void ResetAccumulated() {
    MutexLock lock(mutex_);
    stats_.allocations.reset_accumulated();
    stats_.allocated_bytes.reset_accumulated();
    stats_.num_host_alloc = stats_.num_host_free = 0;
  }
  void ResetPeak() {
    MutexLock lock(mutex_);
    stats_.allocations.reset_peak();
    stats_.allocated_bytes.reset_peak();
  }

 private:
  Mutex mutex_;
  at::HostStats stats_ ABSL_GUARDED_BY(mutex_);
};

Statistics& TheStatistics() {
  static auto* const statistics = new Statistics;
  return *statistics;
}

void FreePinned(void* context) {
  auto* const buffer = static_cast<HostBuffer*>(context);
  TheStatistics().Remove(buffer->bytes().size());
  delete buffer;
}

// A block may be freed at any time: the session keeps it until the commands that use it have completed.
class Allocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    Runtime& runtime = Runtime::ForNewTensors();
    if (bytes == 0 || runtime.is_null()) return c10::GetCPUAllocator()->allocate(bytes);
    auto buffer = Allocate(runtime, bytes);
    if (buffer.ok()) {
      auto owned = std::make_unique<HostBuffer>(*std::move(buffer));
      void* const address = owned->bytes().data();
      TheStatistics().Add(owned->bytes().size());
      return {address, owned.release(), &FreePinned, c10::DeviceType::CPU};
    }
    if (absl::IsCancelled(buffer.status()) || absl::IsUnavailable(buffer.status())) Throw(buffer.status());
    TORCH_WARN_ONCE("XPUD: memory cannot be pinned, using ordinary memory instead: ",
                    std::string(buffer.status().message()));
    return c10::GetCPUAllocator()->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    std::memcpy(target, source, bytes);
  }

  bool record_event(void*, void*, c10::Stream) override {
    return true;
  }  // not needed: a free waits for every stream
  void empty_cache() override {}
  at::HostStats get_stats() override { return TheStatistics().Get(); }
  void reset_accumulated_stats() override { TheStatistics().ResetAccumulated(); }
  void reset_peak_stats() override { TheStatistics().ResetPeak(); }

 private:
  static absl::StatusOr<HostBuffer> Allocate(Runtime& runtime, size_t bytes) {
    const WaitScope scope;
    return runtime.session()->AllocateHost(bytes);
  }
};

Allocator& TheAllocator() {
  static auto* const allocator = new Allocator;
  return *allocator;
}

REGISTER_HOST_ALLOCATOR(kDeviceType, &TheAllocator())

}  // namespace

// Asks the CUDA driver, if it is loaded. PyTorch's own functions would initialise CUDA, and a child forked
// afterwards could not use it.
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
  // The call fails after the last device. It also fails in a forked child, which cannot use CUDA.
  for (int device = 0; get_state.load()(device, &flags, &active) == 0; ++device) {
    if (active != 0) return true;
  }
  return false;
}

c10::Allocator* PinnedAllocator() {
  if (!Runtime::IsConnected() && UsesCuda()) return at::detail::getCUDAHooks().getPinnedMemoryAllocator();
  return &TheAllocator();
}

bool IsPinned(const void* address) {
  if (Runtime::IsConnected()) {
    Runtime& runtime = Runtime::Get();
    if (!runtime.is_null() && runtime.session()->IsHostMemory(address)) return true;
  }
  return UsesCuda() && at::detail::getCUDAHooks().isPinnedPtr(address);
}

}  // namespace xpud::shim
