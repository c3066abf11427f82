#include "drivers/cuda/memory_block.h"

#include <cstring>
#include <utility>

namespace xpud::drivers::cuda {
namespace {

// The minimum alignment of cuMemAlloc and cuMemHostAlloc.
constexpr size_t kDeviceAlignment = 256;
constexpr size_t kHostAlignment = 4096;

}  // namespace

CudaMemoryBlock::Form CudaMemoryBlock::FormOf(const MemoryRequest& request) {
  if (request.type != ZE_MEMORY_TYPE_DEVICE) return Form::kHost;
  const bool plain = !request.exportable && request.import_fd < 0 && request.address == nullptr;
  return plain && request.alignment <= kDeviceAlignment ? Form::kDevice : Form::kPhysical;
}

ze_result_t CudaMemoryBlock::Create(CudaDevice& device, const MemoryRequest& request,
                                    std::unique_ptr<MemoryBlock>& block) {
  if (request.size > device.memory()) return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
  std::unique_ptr<CudaMemoryBlock> made(new CudaMemoryBlock(device, FormOf(request), request.size));
  device.MakeCurrent();
  const ze_result_t result = made->Allocate(request);
  if (result == ZE_RESULT_SUCCESS) block = std::move(made);
  return result;
}

ze_result_t CudaMemoryBlock::Allocate(const MemoryRequest& request) {
  if (form_ == Form::kPhysical) return AllocatePhysical(request);
  if (form_ == Form::kDevice) return device_.Check(cu.cuMemAlloc(&base_, size_));
  const bool shared = request.import_fd >= 0 || request.exportable;
  return shared ? ZE_RESULT_ERROR_UNSUPPORTED_FEATURE : AllocateHost(request.alignment);
}

// Reserves first: a place that is taken is refused before memory is created.
ze_result_t CudaMemoryBlock::AllocatePhysical(const MemoryRequest& request) {
  const size_t size = RoundUp(size_, kPage);
  ze_result_t result = CudaAddressRange::Reserve(device_, size, request.alignment, request.address, range_);
  if (result != ZE_RESULT_SUCCESS) return result;
  result = CudaPhysicalBlock::Create(device_, size, request.import_fd, physical_);
  if (result != ZE_RESULT_SUCCESS) return result;
  result = range_->Map(range_->base(), size, *physical_, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE);
  if (result != ZE_RESULT_SUCCESS) return result;
  mapped_ = size;
  base_ = reinterpret_cast<CUdeviceptr>(range_->base());
  return ZE_RESULT_SUCCESS;
}

ze_result_t CudaMemoryBlock::AllocateHost(size_t alignment) {
  if (alignment > kHostAlignment) return ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
  void* address = nullptr;
  // Whole pages: smaller pieces would only be aligned to 512 bytes.
  const CUresult result = cu.cuMemHostAlloc(&address, RoundUp(size_, kHostAlignment),
                                            CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  if (result != CUDA_SUCCESS) return device_.Check(result);
  base_ = reinterpret_cast<CUdeviceptr>(address);
  std::memset(address, 0, size_);
  return ZE_RESULT_SUCCESS;
}

// A failure here means that the context is gone, and the memory with it.
CudaMemoryBlock::~CudaMemoryBlock() {
  device_.MakeCurrent();
  if (form_ == Form::kDevice && base_ != 0) static_cast<void>(device_.Check(cu.cuMemFree(base_)));
  if (form_ == Form::kHost && base_ != 0)
    static_cast<void>(device_.Check(cu.cuMemFreeHost(reinterpret_cast<void*>(base_))));
  if (mapped_ != 0) static_cast<void>(range_->Unmap(range_->base(), mapped_));
}

}  // namespace xpud::drivers::cuda
