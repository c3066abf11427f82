#include "sdk/torch/csrc/runtime/allocator.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/mutex.h"
#include "proto/base/out_of_memory.h"
#include "sdk/torch/csrc/runtime/errors.h"
#include "sdk/torch/csrc/runtime/memory_history.h"
#include "sdk/torch/csrc/runtime/runtime.h"

namespace xpud::shim {
namespace {

// Allocates Allocations with addresses. Sizes are powers of two from 512 bytes. Freed ones are reused first;
// others are carved from the end of the range in use. Thread-safe.
class AddressSpace {
 public:
  static constexpr int kClasses = 36;
  static int ClassOf(uint64_t bytes) { return std::bit_width((bytes - 1) >> kMinShift); }

  Allocation* Take(int size_class) {
    MutexLock lock(mutex_);
    std::vector<Allocation*>& free = free_[size_class];
    if (!free.empty()) {
      Allocation* allocation = free.back();
      free.pop_back();
      return allocation;
    }
    return Carve(size_class);
  }

  Place Find(const void* address) {
    MutexLock lock(mutex_);
    auto next = carved_.upper_bound(static_cast<const std::byte*>(address));
    if (next == carved_.begin()) return {};
    const Allocation& allocation = *std::prev(next)->second;
    const auto offset = static_cast<uint64_t>(static_cast<const std::byte*>(address) -
                                              static_cast<std::byte*>(allocation.address));
    if (offset >= allocation.bytes) return {};
    CheckIsThere(allocation);
    return {allocation.buffer.handle(), offset};
  }

  std::vector<MemoryInUse> InUse() {
    MutexLock lock(mutex_);
    std::vector<MemoryInUse> all;
    for (const auto& [address, allocation] : carved_) {
      if (!allocation->in_use.load(std::memory_order_relaxed)) continue;
      all.push_back({reinterpret_cast<uint64_t>(address), allocation->bytes, allocation->device});
    }
    return all;
  }

  void Give(Allocation* allocation) {
    MutexLock lock(mutex_);
    free_[allocation->size_class].push_back(allocation);
  }

 private:
  static constexpr int kMinShift = 9;
  static constexpr uint64_t kRange = uint64_t{1} << 45;

  Allocation* Carve(int size_class) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (base_ == nullptr) Reserve();
    const uint64_t size = uint64_t{1} << (kMinShift + size_class);
    TORCH_CHECK_WITH(OutOfMemoryError, used_ + size <= range_,
                     "XPUD: the reserved address range is exhausted; free tensors");
    auto* allocation = new Allocation;
    allocation->address = base_ + used_;
    allocation->size_class = size_class;
    carved_[base_ + used_] = allocation;
    used_ += size;
    return allocation;
  }

  // Tries smaller ranges if the process's address space is limited.
  void Reserve() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (range_ = kRange; range_ >= (uint64_t{1} << 32); range_ >>= 1) {
      void* base = ::mmap(nullptr, range_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (base == MAP_FAILED) continue;
      base_ = static_cast<std::byte*>(base);
      return;
    }
    TORCH_CHECK(false, "XPUD: no address range could be reserved; is the address space limited (ulimit -v)?");
  }

  Mutex mutex_;
  std::array<std::vector<Allocation*>, kClasses> free_ ABSL_GUARDED_BY(mutex_);
  std::map<const std::byte*, Allocation*> carved_ ABSL_GUARDED_BY(mutex_);
  std::byte* base_ ABSL_GUARDED_BY(mutex_) = nullptr;
  uint64_t range_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
};

AddressSpace& Addresses() {
  static AddressSpace* addresses = new AddressSpace;
  return *addresses;
}

// Small allocations that this thread freed and can reuse without a lock. Trivially destructible, because
// storages may be freed after the thread's destructors have run.
struct ThreadCache {
  static constexpr int kClasses = 12;  // up to 1 MiB
  static constexpr int kMax = 32;
  bool closed;
  std::array<int, kClasses> counts;
  std::array<std::array<Allocation*, kMax>, kClasses> free;
};
thread_local constinit ThreadCache thread_cache{};

// Returns the thread's allocations when the thread ends.
struct ThreadCacheCloser {
  ~ThreadCacheCloser() {
    thread_cache.closed = true;
    for (int size_class = 0; size_class < ThreadCache::kClasses; ++size_class) {
      while (thread_cache.counts[size_class] > 0)
        Addresses().Give(thread_cache.free[size_class][--thread_cache.counts[size_class]]);
    }
  }
};

Allocation* TakeAllocation(uint64_t bytes) {
  const int size_class = AddressSpace::ClassOf(bytes);
  if (size_class < ThreadCache::kClasses && thread_cache.counts[size_class] > 0) {
    return thread_cache.free[size_class][--thread_cache.counts[size_class]];
  }
  return Addresses().Take(size_class);
}

void GiveAllocation(Allocation* allocation) {
  const int size_class = allocation->size_class;
  if (size_class < ThreadCache::kClasses && !thread_cache.closed &&
      thread_cache.counts[size_class] < ThreadCache::kMax) {
    static thread_local const ThreadCacheCloser closer;
    (void)closer;
    thread_cache.free[size_class][thread_cache.counts[size_class]++] = allocation;
    return;
  }
  Addresses().Give(allocation);
}

std::array<std::atomic<int64_t>, kMaxDevices> out_of_memory;  // allocations that failed

// What SetMemoryLimit takes from UINT64_MAX; 0: nothing.
std::array<std::atomic<uint64_t>, kMaxDevices> withheld;

// Tells the profiler and the history of memory.
void Report(MemoryHistory::Action action, const Allocation& allocation) {
  const int device = allocation.device;
  const int64_t bytes = static_cast<int64_t>(allocation.bytes);
  if (c10::memoryProfilingEnabled()) {
    // A forked child, which is not connected, may free its parent's tensors.
    Session* const session = Runtime::IsConnected() ? Runtime::Get().session() : nullptr;
    const uint64_t total = session == nullptr ? 0 : session->Memory(device).allocated_bytes;
    c10::reportMemoryUsageToProfiler(allocation.address,
                                     action == MemoryHistory::Action::kAllocate ? bytes : -bytes, total,
                                     total, {kDeviceType, static_cast<c10::DeviceIndex>(device)});
  }
  MemoryHistory::Get().Note(action, device, Runtime::CurrentStream(device),
                            reinterpret_cast<uint64_t>(allocation.address), allocation.bytes);
}

void NoteOutOfMemory(Runtime& runtime, int device, uint64_t bytes) {
  if (!MemoryHistory::IsOn()) return;
  const uint64_t total = runtime.device(device).total_memory;
  const uint64_t used = runtime.is_null() ? 0 : runtime.session()->Memory(device).allocated_bytes;
  MemoryHistory::Get().Note(MemoryHistory::Action::kOutOfMemory, device, Runtime::CurrentStream(device),
                            total - std::min(used, total), bytes);
}

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const int device = Runtime::CurrentDevice();
    const c10::Device torch_device(kDeviceType, static_cast<c10::DeviceIndex>(device));
    if (bytes == 0) return {nullptr, nullptr, &FreeAllocation, torch_device};
    Runtime& runtime = Runtime::ForNewTensors();
    if (AddressSpace::ClassOf(bytes) >= AddressSpace::kClasses) [[unlikely]]
      ThrowOutOfMemory(runtime, device, bytes);
    if (withheld[device].load(std::memory_order_relaxed) != 0) [[unlikely]]
      CheckLimit(runtime, device, bytes);
    Allocation* allocation = TakeAllocation(bytes);
    allocation->bytes = bytes;
    allocation->runtime = runtime.number();
    allocation->device = device;
    c10::DataPtr data(allocation->address, allocation, &FreeAllocation, torch_device);
    if (!runtime.is_null()) [[likely]]
      SetBuffer(runtime, *allocation);
    allocation->in_use.store(true, std::memory_order_relaxed);
    if (c10::memoryProfilingEnabled() || MemoryHistory::IsOn()) [[unlikely]]
      Report(MemoryHistory::Action::kAllocate, *allocation);
    return data;
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "XPUD: device memory has no usable addresses; copy tensors instead");
  }

  bool initialized() override { return Runtime::IsConnected(); }
  void emptyCache(c10::MempoolId_t) override {}  // nothing is cached here: the daemon owns the pool
  void recordStream(const c10::DataPtr&, c10::Stream) override {
  }  // not needed: a free waits for the last use on every queue
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    out_of_memory.at(device) = 0;
    if (Session* session = Runtime::Get().session()) session->ResetAccumulatedMemory(device);
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    if (Session* session = Runtime::Get().session()) session->ResetPeakMemory(device);
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    Runtime& runtime = Runtime::Get();
    const uint64_t total = runtime.device(device).total_memory;
    if (runtime.is_null()) return {total, total};
    const absl::StatusOr<uint64_t> free = runtime.session()->FreeMemory(static_cast<uint32_t>(device));
    ThrowIfError(free.status());
    const uint64_t limit = UINT64_MAX - withheld.at(device).load(std::memory_order_relaxed);
    const uint64_t used = runtime.session()->Memory(device).allocated_bytes;
    return {std::min({*free, limit - std::min(used, limit), total}), total};
  }

 private:
  static void CheckLimit(Runtime& runtime, int device, size_t bytes) {
    const uint64_t limit = UINT64_MAX - withheld[device].load(std::memory_order_relaxed);
    const uint64_t used = runtime.is_null() ? 0 : runtime.session()->Memory(device).allocated_bytes;
    if (used <= limit && bytes <= limit - used) return;
    out_of_memory[device].fetch_add(1);
    NoteOutOfMemory(runtime, device, bytes);
    Throw(absl::ResourceExhaustedError(absl::StrCat(kOutOfMemoryOpening, "Tried to allocate ",
                                                    BytesText(bytes), ". Of the ", BytesText(limit),
                                                    " that set_per_process_memory_fraction allows on device ",
                                                    device, ", ", BytesText(used), " are in use.")));
  }
  // For requests above the largest size class. Throws the daemon's error, or ours if the daemon would accept
  // the request.
  [[noreturn]] static void ThrowOutOfMemory(Runtime& runtime, int device, size_t bytes) {
    out_of_memory[device].fetch_add(1);
    NoteOutOfMemory(runtime, device, bytes);
    if (!runtime.is_null()) ThrowIfError(runtime.current_queue(device).Allocate(bytes).status());
    Throw(absl::ResourceExhaustedError(
        absl::StrCat(kOutOfMemoryOpening, "Tried to allocate ", BytesText(bytes))));
  }
  static void SetBuffer(Runtime& runtime, Allocation& allocation) {
    auto buffer = runtime.current_queue(allocation.device).Allocate(allocation.bytes);
    if (!buffer.ok()) [[unlikely]] {
      if (IsOutOfMemory(buffer.status())) {
        out_of_memory[allocation.device].fetch_add(1);
        NoteOutOfMemory(runtime, allocation.device, allocation.bytes);
      }
      Throw(buffer.status());
    }
    allocation.buffer = *std::move(buffer);
  }
};

c10::CachingDeviceAllocator::DeviceStats Allocator::getDeviceStats(c10::DeviceIndex device) {
  c10::CachingDeviceAllocator::DeviceStats stats;
  const auto aggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  Runtime& runtime = Runtime::Get();
  const MemoryStats memory = runtime.is_null() ? MemoryStats{} : runtime.session()->Memory(device);
  c10::CachingAllocator::Stat bytes;
  bytes.allocated = static_cast<int64_t>(memory.total_allocated_bytes);
  bytes.freed = static_cast<int64_t>(memory.total_freed_bytes);
  bytes.current = static_cast<int64_t>(memory.allocated_bytes);
  bytes.peak = static_cast<int64_t>(memory.peak_allocated_bytes);
  for (auto* each :
       {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes}) {
    (*each)[aggregate] = bytes;
  }
  c10::CachingAllocator::Stat blocks;
  blocks.allocated = static_cast<int64_t>(memory.allocations);
  blocks.freed = static_cast<int64_t>(memory.frees);
  blocks.current = blocks.peak = static_cast<int64_t>(memory.buffers);
  stats.allocation[aggregate] = stats.active[aggregate] = blocks;
  stats.num_ooms = out_of_memory.at(device);
  return stats;
}

Allocator& TheAllocator() {
  static Allocator* allocator = new Allocator;
  return *allocator;
}
REGISTER_ALLOCATOR(kDeviceType, &TheAllocator())

}  // namespace

c10::DeviceAllocator* GetAllocator() { return &TheAllocator(); }

void SetMemoryLimit(int device, uint64_t bytes) { withheld.at(device) = UINT64_MAX - bytes; }

Ticket ShareStorage(const c10::StorageImpl& storage) {
  const c10::DataPtr& data = storage.data_ptr();
  const auto* const allocation = static_cast<const Allocation*>(data.get_context());
  TORCH_CHECK(data.get_deleter() == &FreeAllocation && allocation != nullptr,
              "XPUD: a storage that was made from another one's address cannot be sent to another process; "
              "send a clone");
  CheckIsThere(*allocation);
  Runtime& runtime = Runtime::Get();
  TORCH_CHECK_NOT_IMPLEMENTED(!runtime.is_null(), "XPUD: the null device shares no memory");
  const WaitScope waits;
  const absl::StatusOr<Ticket> ticket = runtime.session()->Share(allocation->buffer);
  ThrowIfError(ticket.status());
  return *ticket;
}

c10::Storage AttachStorage(const Ticket& ticket, uint64_t bytes) {
  Runtime& runtime = Runtime::ForNewTensors();
  TORCH_CHECK_NOT_IMPLEMENTED(!runtime.is_null(), "XPUD: the null device shares no memory");
  absl::StatusOr<Buffer> buffer = Buffer();
  {
    const WaitScope waits;
    buffer = runtime.session()->Attach(ticket);
  }
  ThrowIfError(buffer.status());
  TORCH_CHECK(bytes <= buffer->bytes(), "XPUD: the sender has said that its storage has ", bytes,
              " bytes; its memory has ", buffer->bytes());
  const auto device = static_cast<int>(buffer->device());
  Allocation* const allocation = TakeAllocation(buffer->bytes());
  allocation->bytes = buffer->bytes();
  allocation->runtime = runtime.number();
  allocation->device = device;
  allocation->buffer = *std::move(buffer);
  allocation->in_use.store(true, std::memory_order_relaxed);
  if (c10::memoryProfilingEnabled() || MemoryHistory::IsOn())
    Report(MemoryHistory::Action::kAllocate, *allocation);
  return c10::Storage(c10::Storage::use_byte_size_t(), bytes,
                      c10::DataPtr(allocation->address, allocation, &FreeAllocation,
                                   c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(device))),
                      GetAllocator(), /*resizable=*/false);
}

void ReturnTicket(const Ticket& ticket) {
  Runtime& runtime = Runtime::Get();
  if (runtime.is_null()) return;
  const WaitScope waits;
  ThrowIfError(runtime.session()->ReturnTicket(ticket));
}

std::vector<MemoryInUse> FindMemoryInUse() { return Addresses().InUse(); }

void ThrowLost() {
  Throw(absl::UnavailableError(
      "this tensor's memory was at an xpud daemon that died, and is lost; make the tensor anew"));
}

Place FindPlace(const void* address) { return Addresses().Find(address); }

void FreeAllocation(void* context) {
  auto* allocation = static_cast<Allocation*>(context);
  if (allocation == nullptr) return;
  const bool was_in_use = allocation->in_use.load(std::memory_order_relaxed);  // false: it got no memory
  allocation->in_use.store(false, std::memory_order_relaxed);
  allocation->buffer.Free();
  if (was_in_use && (c10::memoryProfilingEnabled() || MemoryHistory::IsOn())) [[unlikely]]
    Report(MemoryHistory::Action::kFree, *allocation);
  GiveAllocation(allocation);
}

}  // namespace xpud::shim
