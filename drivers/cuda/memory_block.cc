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

ze_result_t MemoryBlock::AllocateDevice(CudaDevice& device, const MemoryRequest& request,
                                        std::unique_ptr<MemoryBlock>& block) {
  const bool plain = !request.exportable && request.import_fd < 0 && request.address == nullptr;
  if (!plain || request.alignment > kDeviceAlignment) return AllocatePhysical(device, request, block);
  block.reset(new MemoryBlock(device, Form::kDevice, request.size));
  device.MakeCurrent();
  return device.Check(cu.cuMemAlloc(&block->base_, request.size));
}

ze_result_t MemoryBlock::AllocatePhysical(CudaDevice& device, const MemoryRequest& request,
                                          std::unique_ptr<MemoryBlock>& block) {
  block.reset(new MemoryBlock(device, Form::kPhysical, request.size));
  device.MakeCurrent();
  const CUmemAllocationProp properties = PhysicalMemoryOf(device);
  size_t granularity = 0;
  ze_result_t result = device.Check(
      cu.cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  if (result != ZE_RESULT_SUCCESS) return result;
  const size_t size = RoundUp(request.size, granularity);
  result = block->Reserve(size, std::max(granularity, request.alignment), request.address);
  if (result != ZE_RESULT_SUCCESS) return result;
  const bool import = request.import_fd >= 0;
  result = import ? block->Import(request.import_fd)
                  : device.Check(cu.cuMemCreate(&block->handle_, size, &properties, 0));
  if (result != ZE_RESULT_SUCCESS) return result;
  result = device.Check(block->Map());
  // An imported handle is good: what cannot be mapped is more than there is.
  const bool refused =
      result == ZE_RESULT_ERROR_INVALID_ARGUMENT || result == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  return import && refused ? ZE_RESULT_ERROR_INVALID_SIZE : result;
}

// CUDA takes an address for a hint: where it is not free, the range lies elsewhere.
ze_result_t MemoryBlock::Reserve(size_t size, size_t alignment, void* address) {
  const auto wanted = reinterpret_cast<CUdeviceptr>(address);
  const ze_result_t result = device_.Check(cu.cuMemAddressReserve(&base_, size, alignment, wanted, 0));
  if (result == ZE_RESULT_ERROR_DEVICE_LOST) return result;
  if (result == ZE_RESULT_SUCCESS) reserved_ = size;
  const bool elsewhere = wanted != 0 && (reserved_ == 0 || base_ != wanted);
  return elsewhere ? ZE_RESULT_ERROR_OVERLAPPING_REGIONS : result;
}

ze_result_t MemoryBlock::Import(int fd) {
  const ze_result_t result = device_.Check(
      cu.cuMemImportFromShareableHandle(&handle_, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  const bool strange = result != ZE_RESULT_SUCCESS && result != ZE_RESULT_ERROR_DEVICE_LOST;
  return strange ? ZE_RESULT_ERROR_INVALID_ARGUMENT : result;
}

CUresult MemoryBlock::Map() {
  const CUresult result = cu.cuMemMap(base_, reserved_, 0, handle_, 0);
  if (result != CUDA_SUCCESS) return result;
  mapped_ = reserved_;
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device_.device()},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return cu.cuMemSetAccess(base_, mapped_, &access, 1);
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
