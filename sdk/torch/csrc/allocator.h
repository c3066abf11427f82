// Device memory behind PyTorch's storages. A storage's data pointer is an address in a reserved range that
// nobody can read or write: unique among live allocations and otherwise without meaning. The buffer hangs on
// the DataPtr's context.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "xpud/xpud.h"

namespace xpud::shim {

// The context of a DataPtr. Recycled with its address; fields are constant while the storage lives.
struct Allocation {
  Buffer buffer;  // none on the null device
  uint64_t bytes = 0;
  void* address = nullptr;
  int device = 0;
  int size_class = 0;
};

// Any thread.
c10::DeviceAllocator* GetAllocator();

void FreeAllocation(void* context);  // the deleter of our DataPtrs

// Where a tensor's first element lies.
struct Place {
  BufferHandle buffer;
  uint64_t offset = 0;  // bytes
};

// The place that an address of the reserved range stands for; null for any other address.
Place FindPlace(const void* address);

// Null for a tensor without bytes. Storages made over a bare address (at::from_blob) are looked up.
inline Place PlaceOf(const at::TensorBase& tensor) {
  const c10::DataPtr& data = tensor.unsafeGetTensorImpl()->unsafe_storage().data_ptr();
  const uint64_t offset = static_cast<uint64_t>(tensor.storage_offset()) * tensor.itemsize();
  if (data.get_deleter() == &FreeAllocation) [[likely]] {
    const auto* allocation = static_cast<const Allocation*>(data.get_context());
    return allocation == nullptr ? Place{} : Place{allocation->buffer.handle(), offset};
  }
  Place place = FindPlace(data.get());
  place.offset += offset;
  return place;
}

}  // namespace xpud::shim
