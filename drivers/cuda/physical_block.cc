#include "drivers/cuda/physical_block.h"

#include <cstdint>
#include <utility>

namespace xpud::drivers::cuda {
namespace {

CUmemAllocationProp PropertiesOn(const CudaDevice& device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device.device()};
  return properties;
}

}  // namespace

ze_result_t CudaPhysicalBlock::Create(CudaDevice& device, size_t size, int import_fd,
                                      std::unique_ptr<CudaPhysicalBlock>& block) {
  std::unique_ptr<CudaPhysicalBlock> made(new CudaPhysicalBlock(device, size, import_fd >= 0));
  device.MakeCurrent();
  const CUmemAllocationProp properties = PropertiesOn(device);
  const ze_result_t result = import_fd >= 0
                                 ? made->Import(import_fd)
                                 : device.Check(cu.cuMemCreate(&made->handle_, size, &properties, 0));
  if (result == ZE_RESULT_SUCCESS) block = std::move(made);
  return result;
}

ze_result_t CudaPhysicalBlock::Import(int fd) {
  const ze_result_t result = device_.Check(
      cu.cuMemImportFromShareableHandle(&handle_, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  const bool strange = result != ZE_RESULT_SUCCESS && result != ZE_RESULT_ERROR_DEVICE_LOST;
  return strange ? ZE_RESULT_ERROR_INVALID_ARGUMENT : result;
}

ze_result_t CudaPhysicalBlock::Export(int& fd) const {
  device_.MakeCurrent();
  return device_.Check(
      cu.cuMemExportToShareableHandle(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

// A failure here means that the context is gone, and the memory with it.
CudaPhysicalBlock::~CudaPhysicalBlock() {
  if (handle_ == 0) return;
  device_.MakeCurrent();
  static_cast<void>(device_.Check(cu.cuMemRelease(handle_)));
}

}  // namespace xpud::drivers::cuda
