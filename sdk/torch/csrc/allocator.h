// Device memory behind PyTorch's storages. A storage's data pointer is an address in a reserved range that nobody can
// read or write: unique among live allocations and otherwise without meaning. The buffer hangs on the DataPtr's context.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <memory>

#include "xpud/xpud.h"

namespace xpud::shim {

// The context of a DataPtr. Recycled with its address; fields are constant while the storage lives.
struct Allocation {
  std::shared_ptr<Buffer> buffer;
  BufferHandle handle;
  uint64_t bytes = 0;
  void* address = nullptr;
  int device = 0;
  int size_class = 0;
};

// Any thread.
c10::DeviceAllocator* GetAllocator();

void FreeAllocation(void* context);  // the deleter of our DataPtrs

// The allocation that `tensor` views; nullptr for a tensor without bytes, or of another allocator.
inline const Allocation* AllocationOf(const at::TensorBase& tensor) {
  const c10::DataPtr& data = tensor.unsafeGetTensorImpl()->unsafe_storage().data_ptr();
  return data.get_deleter() == &FreeAllocation ? static_cast<const Allocation*>(data.get_context()) : nullptr;
}

}  // namespace xpud::shim
