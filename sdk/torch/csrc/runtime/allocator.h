// Device memory of PyTorch's storages. A storage's data pointer is an address in a reserved range, which can
// be neither read nor written. It is unique among live allocations and has no other meaning. The context of
// the DataPtr owns the buffer. All functions are thread-safe.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <vector>

#include "sdk/torch/csrc/runtime/runtime.h"
#include "xpud/xpud.h"

namespace xpud::shim {

// The context of a DataPtr. Recycled together with its address; the fields are constant while the storage
// lives.
struct Allocation {
  Buffer buffer;  // empty on the null device
  uint64_t bytes = 0;
  void* address = nullptr;
  uint32_t runtime = 0;  // Runtime::number
  int device = 0;
  int size_class = 0;
  std::atomic<bool> in_use = false;  // by a storage
};

// From now on, allocations that would take more than `bytes` of a device in all are refused.
void SetMemoryLimit(int device, uint64_t bytes);

struct MemoryInUse {
  uint64_t address, bytes;
  int device;
};
// Returns the memory of all storages. If other threads allocate meanwhile, theirs may be missing.
std::vector<MemoryInUse> FindMemoryInUse();

c10::DeviceAllocator* GetAllocator();

void FreeAllocation(void* context);  // the deleter of our DataPtrs

// Makes a ticket for the storage's memory (Session::Share). Waits, without the interpreter lock. Throws for
// storages that have no memory of their own, and as ThrowIfError.
Ticket ShareStorage(const c10::StorageImpl& storage);
// Returns a storage of `bytes` whose memory is that of the ticket. It cannot be resized.
c10::Storage AttachStorage(const Ticket& ticket, uint64_t bytes);
void ReturnTicket(const Ticket& ticket);

// The position of a tensor's first element.
struct Place {
  BufferHandle buffer;
  uint64_t offset = 0;  // bytes
};

// Throws for memory of a daemon that is gone.
[[noreturn]] void ThrowLost();
inline void CheckIsThere(const Allocation& allocation) {
  if (allocation.runtime != Runtime::current_number()) [[unlikely]]
    ThrowLost();
}

// Returns the place that an address of the reserved range denotes, or a null place for any other address.
Place FindPlace(const void* address);

// Returns a null place for a tensor without bytes. Storages made from a bare address (at::from_blob) are
// looked up. Raises NotImplementedError for a tensor without memory, such as torch.func's wrappers, and
// AcceleratorError if its daemon is gone.
inline Place PlaceOf(const at::TensorBase& tensor) {
  const c10::Storage& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  TORCH_CHECK_NOT_IMPLEMENTED(
      storage,
      "xpud computes on tensors with memory, and this one has none: a tensor of torch.func, or a subclass");
  const c10::DataPtr& data = storage.data_ptr();
  const uint64_t offset = static_cast<uint64_t>(tensor.storage_offset()) * tensor.itemsize();
  if (data.get_deleter() == &FreeAllocation) [[likely]] {
    const auto* allocation = static_cast<const Allocation*>(data.get_context());
    if (allocation == nullptr) return {};
    CheckIsThere(*allocation);
    return {allocation->buffer.handle(), offset};
  }
  Place place = FindPlace(data.get());
  place.offset += offset;
  return place;
}

}  // namespace xpud::shim
