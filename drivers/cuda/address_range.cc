#include "drivers/cuda/address_range.h"

#include <algorithm>
#include <utility>

#include "proto/base/ze_ext.h"

namespace xpud::drivers::cuda {
namespace {

CUdeviceptr Address(const std::byte* address) { return reinterpret_cast<CUdeviceptr>(address); }

CUmemAccess_flags FlagsOf(ze_memory_access_attribute_t access) {
  if (access == ZE_MEMORY_ACCESS_ATTRIBUTE_NONE) return CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return access == ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                       : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

CUresult SetCudaAccess(CUdeviceptr address, size_t size, const CudaPhysicalBlock& memory,
                       ze_memory_access_attribute_t access) {
  const CUmemAccessDesc desc{{CU_MEM_LOCATION_TYPE_DEVICE, memory.device().device()}, FlagsOf(access)};
  return cu.cuMemSetAccess(address, size, &desc, 1);
}

// Handle, addresses and sizes are valid. So if CUDA refuses to map imported memory, it is too small, and
// otherwise CUDA does not map a part of it.
ze_result_t RefusalOf(const CudaPhysicalBlock& memory, ze_result_t result) {
  const bool refused =
      result == ZE_RESULT_ERROR_INVALID_ARGUMENT || result == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  if (!refused) return result;
  return memory.imported() ? ZE_RESULT_ERROR_INVALID_SIZE : ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

}  // namespace

// CUDA treats the address as a hint. If it is in use or not a multiple of 32 MiB, or if the range has only a
// few megabytes, the range is placed elsewhere. Hence whole units.
ze_result_t CudaAddressRange::Reserve(CudaDevice& device, size_t size, size_t alignment, void* start,
                                      std::unique_ptr<CudaAddressRange>& range) {
  std::unique_ptr<CudaAddressRange> made(new CudaAddressRange(device, size));
  const auto wanted = reinterpret_cast<CUdeviceptr>(start);
  const size_t reserved = wanted == 0 ? size : RoundUp(size, XPUD_MEM_ADDRESS_UNIT);
  device.MakeCurrent();
  const ze_result_t result =
      device.Check(cu.cuMemAddressReserve(&made->base_, reserved, std::max(alignment, kPage), wanted, 0));
  if (result == ZE_RESULT_ERROR_DEVICE_LOST) return result;
  if (result == ZE_RESULT_SUCCESS) made->reserved_ = reserved;
  const bool elsewhere = wanted != 0 && (made->reserved_ == 0 || made->base_ != wanted);
  if (elsewhere) return ZE_RESULT_ERROR_OVERLAPPING_REGIONS;
  if (result == ZE_RESULT_SUCCESS) range = std::move(made);
  return result;
}

// A failure here means that the context is gone, and the range with it.
CudaAddressRange::~CudaAddressRange() {
  if (reserved_ == 0) return;
  device_.MakeCurrent();
  static_cast<void>(device_.Check(cu.cuMemAddressFree(base_, reserved_)));
}

ze_result_t CudaAddressRange::Map(std::byte* address, size_t size, const PhysicalBlock& memory, size_t offset,
                                  ze_memory_access_attribute_t access) {
  const auto& block = static_cast<const CudaPhysicalBlock&>(memory);
  const CudaDevice& device = block.device();
  if (device.lost()) return ZE_RESULT_ERROR_DEVICE_LOST;
  if (offset != 0) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  device.MakeCurrent();
  ze_result_t result = device.Check(cu.cuMemMap(Address(address), size, 0, block.handle(), 0));
  if (result != ZE_RESULT_SUCCESS) return RefusalOf(block, result);
  if (access == ZE_MEMORY_ACCESS_ATTRIBUTE_NONE) return result;  // as after cuMemMap
  result = device.Check(SetCudaAccess(Address(address), size, block, access));
  if (result != ZE_RESULT_SUCCESS) static_cast<void>(device.Check(cu.cuMemUnmap(Address(address), size)));
  return access == ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE ? RefusalOf(block, result) : result;
}

ze_result_t CudaAddressRange::Unmap(std::byte* address, size_t size) {
  device_.MakeCurrent();
  return device_.Check(cu.cuMemUnmap(Address(address), size));
}

ze_result_t CudaAddressRange::SetAccess(std::byte* address, size_t size, const PhysicalBlock& memory,
                                        ze_memory_access_attribute_t access) {
  const auto& block = static_cast<const CudaPhysicalBlock&>(memory);
  if (block.device().lost()) return ZE_RESULT_ERROR_DEVICE_LOST;
  block.device().MakeCurrent();
  return block.device().Check(SetCudaAccess(Address(address), size, block, access));
}

}  // namespace xpud::drivers::cuda
