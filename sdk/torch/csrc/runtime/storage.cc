#include "sdk/torch/csrc/runtime/storage.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>

#include "sdk/torch/csrc/runtime/allocator.h"
#include "sdk/torch/csrc/runtime/errors.h"

namespace xpud::shim {

at::Tensor MakeEmpty(c10::IntArrayRef sizes, at::ScalarType type, c10::Device device) {
  const AllocationDevice scope(device);
  return at::Tensor(at::detail::empty_generic(sizes, GetAllocator(), kTensorKeys, type, std::nullopt));
}

void ResizeStorage(c10::StorageImpl& storage, size_t bytes) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  const AllocationDevice scope(storage.device());
  c10::DataPtr data = GetAllocator()->allocate(bytes);
  const size_t kept = std::min(bytes, storage.nbytes());
  Runtime& runtime = Runtime::Get();
  if (kept > 0 && !runtime.is_null()) {
    const Place from = FindPlace(storage.data()), to = FindPlace(data.get());
    ThrowIfError(runtime.current_queue(storage.device().index())
                     .Copy(from.buffer, from.offset, to.buffer, to.offset, kept));
  }
  storage.set_data_ptr_noswap(std::move(data));
  storage.set_nbytes(bytes);
}

}  // namespace xpud::shim
