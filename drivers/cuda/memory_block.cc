#include "drivers/cuda/memory_block.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/base/ze_ext.h"

namespace xpud::drivers::cuda {
namespace {

// The minimum alignment of cuMemAlloc and cuMemHostAlloc.
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

ze_result_t CudaMemoryBlock::AllocatePhysical(const MemoryRequest& request) {
  const CUmemAllocationProp properties = PhysicalMemoryOf(device_);
  size_t granularity = 0;
  ze_result_t result = device_.Check(
      cu.cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  if (result != ZE_RESULT_SUCCESS) return result;
  const size_t size = RoundUp(size_, granularity);
  result = Reserve(size, std::max(granularity, request.alignment), request.address);
  if (result != ZE_RESULT_SUCCESS) return result;
  const bool import = request.import_fd >= 0;
  result = import ? Import(request.import_fd) : device_.Check(cu.cuMemCreate(&handle_, size, &properties, 0));
  if (result != ZE_RESULT_SUCCESS) return result;
  result = device_.Check(Map(size));
  // The imported handle is valid, so a failed mapping means that the request is larger than the memory.
  const bool refused =
      result == ZE_RESULT_ERROR_INVALID_ARGUMENT || result == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  return import && refused ? ZE_RESULT_ERROR_INVALID_SIZE : result;
}

// CUDA treats the address as a hint. If it is in use or not a multiple of 32 MiB, or if the range has only a
// few megabytes, the range is placed elsewhere. Hence whole units.
ze_result_t CudaMemoryBlock::Reserve(size_t size, size_t alignment, void* address) {
  const auto wanted = reinterpret_cast<CUdeviceptr>(address);
  const size_t range = wanted == 0 ? size : RoundUp(size, XPUD_MEM_ADDRESS_UNIT);
  const ze_result_t result = device_.Check(cu.cuMemAddressReserve(&base_, range, alignment, wanted, 0));
  if (result == ZE_RESULT_ERROR_DEVICE_LOST) return result;
  if (result == ZE_RESULT_SUCCESS) reserved_ = range;
  const bool elsewhere = wanted != 0 && (reserved_ == 0 || base_ != wanted);
  return elsewhere ? ZE_RESULT_ERROR_OVERLAPPING_REGIONS : result;
}

ze_result_t CudaMemoryBlock::Import(int fd) {
  const ze_result_t result = device_.Check(
      cu.cuMemImportFromShareableHandle(&handle_, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  const bool strange = result != ZE_RESULT_SUCCESS && result != ZE_RESULT_ERROR_DEVICE_LOST;
  return strange ? ZE_RESULT_ERROR_INVALID_ARGUMENT : result;
}

CUresult CudaMemoryBlock::Map(size_t size) {
  const CUresult result = cu.cuMemMap(base_, size, 0, handle_, 0);
  if (result != CUDA_SUCCESS) return result;
  mapped_ = size;
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device_.device()},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return cu.cuMemSetAccess(base_, size, &access, 1);
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
  if (mapped_ != 0) static_cast<void>(device_.Check(cu.cuMemUnmap(base_, mapped_)));
  if (reserved_ != 0) static_cast<void>(device_.Check(cu.cuMemAddressFree(base_, reserved_)));
  if (handle_ != 0) static_cast<void>(device_.Check(cu.cuMemRelease(handle_)));
}

ze_result_t CudaMemoryBlock::Export(int& fd) const {
  device_.MakeCurrent();
  return device_.Check(
      cu.cuMemExportToShareableHandle(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

}  // namespace xpud::drivers::cuda
