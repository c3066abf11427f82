#include "drivers/cuda/memory_block.h"

#include <algorithm>
#include <cstring>

namespace xpud::drivers::cuda {
namespace {

// What cuMemAlloc and cuMemHostAlloc align to at least.
constexpr size_t kDeviceAlignment = 256;
constexpr size_t kHostAlignment = 4096;

CUmemAllocationProp PhysicalMemoryOf(const CudaDevice& device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device.device()};
  return properties;
}

size_t RoundUp(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

}  // namespace

ze_result_t MemoryBlock::AllocateDevice(CudaDevice& device, size_t size, size_t alignment,
                                        std::unique_ptr<MemoryBlock>& block) {
  if (alignment > kDeviceAlignment) return AllocateExportable(device, size, alignment, block);
  block.reset(new MemoryBlock(device, Form::kDevice, size));
  device.MakeCurrent();
  return device.Check(cu.cuMemAlloc(&block->base_, size));
}

ze_result_t MemoryBlock::AllocateExportable(CudaDevice& device, size_t size, size_t alignment,
                                            std::unique_ptr<MemoryBlock>& block) {
  block.reset(new MemoryBlock(device, Form::kPhysical, size));
  device.MakeCurrent();
  const CUmemAllocationProp properties = PhysicalMemoryOf(device);
  size_t granularity = 0;
  CUresult result =
      cu.cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result == CUDA_SUCCESS)
    result = cu.cuMemCreate(&block->handle_, RoundUp(size, granularity), &properties, 0);
  if (result == CUDA_SUCCESS) result = block->Map(granularity, alignment);
  return device.Check(result);
}

ze_result_t MemoryBlock::Import(CudaDevice& device, int fd, size_t size, size_t alignment,
                                std::unique_ptr<MemoryBlock>& block) {
  if (fd < 0) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  block.reset(new MemoryBlock(device, Form::kPhysical, size));
  device.MakeCurrent();
  const CUmemAllocationProp properties = PhysicalMemoryOf(device);
  size_t granularity = 0;
  CUresult result =
      cu.cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result == CUDA_SUCCESS)
    result =
        cu.cuMemImportFromShareableHandle(&block->handle_, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS) {
    const ze_result_t checked = device.Check(result);
    return checked == ZE_RESULT_ERROR_DEVICE_LOST ? checked : ZE_RESULT_ERROR_INVALID_ARGUMENT;
  }
  const ze_result_t mapped = device.Check(block->Map(granularity, alignment));
  // The handle is good: what cannot be mapped is more than there is.
  const bool refused =
      mapped == ZE_RESULT_ERROR_INVALID_ARGUMENT || mapped == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  return refused ? ZE_RESULT_ERROR_INVALID_SIZE : mapped;
}

CUresult MemoryBlock::Map(size_t granularity, size_t alignment) {
  const size_t size = RoundUp(size_, granularity);
  CUresult result = cu.cuMemAddressReserve(&base_, size, std::max(granularity, alignment), 0, 0);
  if (result != CUDA_SUCCESS) return result;
  reserved_ = size;
  result = cu.cuMemMap(base_, size, 0, handle_, 0);
  if (result != CUDA_SUCCESS) return result;
  mapped_ = size;
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device_.device()},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return cu.cuMemSetAccess(base_, size, &access, 1);
}

ze_result_t MemoryBlock::AllocateHost(CudaDevice& device, size_t size, size_t alignment,
                                      std::unique_ptr<MemoryBlock>& block) {
  if (alignment > kHostAlignment) return ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
  block.reset(new MemoryBlock(device, Form::kHost, size));
  device.MakeCurrent();
  void* address = nullptr;
  // Whole pages: smaller pieces would only be aligned to 512 bytes.
  const CUresult result = cu.cuMemHostAlloc(&address, RoundUp(size, kHostAlignment),
                                            CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  if (result != CUDA_SUCCESS) return device.Check(result);
  block->base_ = reinterpret_cast<CUdeviceptr>(address);
  std::memset(address, 0, size);
  return ZE_RESULT_SUCCESS;
}

// What fails here fails because the context is gone, and the memory with it.
MemoryBlock::~MemoryBlock() {
  device_.MakeCurrent();
  if (form_ == Form::kDevice && base_ != 0) static_cast<void>(device_.Check(cu.cuMemFree(base_)));
  if (form_ == Form::kHost && base_ != 0)
    static_cast<void>(device_.Check(cu.cuMemFreeHost(reinterpret_cast<void*>(base_))));
  if (mapped_ != 0) static_cast<void>(device_.Check(cu.cuMemUnmap(base_, mapped_)));
  if (reserved_ != 0) static_cast<void>(device_.Check(cu.cuMemAddressFree(base_, reserved_)));
  if (handle_ != 0) static_cast<void>(device_.Check(cu.cuMemRelease(handle_)));
}

ze_result_t MemoryBlock::Export(int& fd) const {
  device_.MakeCurrent();
  return device_.Check(
      cu.cuMemExportToShareableHandle(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

}  // namespace xpud::drivers::cuda
