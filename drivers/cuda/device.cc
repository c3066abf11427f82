#include "drivers/cuda/device.h"

#include <cstdio>
#include <cstring>
#include <string_view>

#include "drivers/cuda/nvml.h"
#include "drivers/cuda/pci_files.h"
#include "drivers/cuda/wait.h"
#include "drivers/frontend/pci.h"

namespace xpud::drivers::cuda {
namespace {

constexpr uint32_t kNvidia = 0x10de;
constexpr int kMinimumCapability = 7;  // the built-in kernels' target is sm_70
// The clock is read by a kernel. If the device is busy for longer than this, use an estimate from the last
// reading.
constexpr uint64_t kClockTimeoutNs = 100'000'000;

CUresult FindPciAddress(CUdevice device, ze_pci_address_ext_t& address) {
  char text[32] = {};
  const CUresult result = cu.cuDeviceGetPCIBusId(text, sizeof(text), device);
  if (result != CUDA_SUCCESS) return result;
  text[sizeof(text) - 1] = '\0';
  return ReadPciAddress(text, address) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

}  // namespace

std::unique_ptr<CudaDevice> CudaDevice::Open(const Driver* driver, int ordinal, std::string& reason) {
  CUdevice handle = 0;
  size_t memory = 0;
  CUresult result = cu.cuDeviceGet(&handle, ordinal);
  if (result == CUDA_SUCCESS) result = cu.cuDeviceTotalMem(&memory, handle);
  if (result != CUDA_SUCCESS) {
    reason = "GPU " + std::to_string(ordinal) + " does not answer: " + Describe(result);
    return nullptr;
  }
  std::unique_ptr<CudaDevice> device(new CudaDevice(driver, handle, memory));
  const uint32_t capability = device->Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  if (capability < kMinimumCapability) {
    reason = "GPU " + std::to_string(ordinal) + " has compute capability " + std::to_string(capability) +
             "; at least " + std::to_string(kMinimumCapability) + " is needed";
    return nullptr;
  }
  if (device->Attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) == 0) {
    reason = "GPU " + std::to_string(ordinal) + " cannot share memory by file descriptor";
    return nullptr;
  }
  return device;
}

bool CudaDevice::CanAccessPeer(const Device& peer) const {
  if (&peer == this) return true;
  if (peer.driver() != driver()) return false;
  int can = 0;
  return cu.cuDeviceCanAccessPeer(&can, device_, static_cast<const CudaDevice&>(peer).device_) ==
             CUDA_SUCCESS &&
         can != 0;
}

uint32_t CudaDevice::Attribute(CUdevice_attribute attribute) const {
  int value = 0;
  return cu.cuDeviceGetAttribute(&value, attribute, device_) == CUDA_SUCCESS ? static_cast<uint32_t>(value)
                                                                             : 0;
}

CUresult CudaDevice::ActivateLocked() {
  CUresult result = cu.cuDevicePrimaryCtxRetain(&context_, device_);
  if (result != CUDA_SUCCESS) return result;
  MakeCurrent();
  result = cu.cuCtxGetStreamPriorityRange(&least_priority_, &greatest_priority_);
  if (result == CUDA_SUCCESS) result = builtins_.Load();
  if (result == CUDA_SUCCESS)
    result = cu.cuStreamCreateWithPriority(&utility_, CU_STREAM_NON_BLOCKING, greatest_priority_);
  void* clock = nullptr;
  if (result == CUDA_SUCCESS) result = cu.cuMemHostAlloc(&clock, sizeof(*clock_), CU_MEMHOSTALLOC_PORTABLE);
  clock_ = static_cast<uint64_t*>(clock);
  return result;
}

ze_result_t CudaDevice::Activate() {
  if (lost()) return ZE_RESULT_ERROR_DEVICE_LOST;
  if (active()) return ZE_RESULT_SUCCESS;
  MutexLock lock(mutex_);
  if (active()) return ZE_RESULT_SUCCESS;
  const ze_result_t result = Check(ActivateLocked());
  active_.store(result == ZE_RESULT_SUCCESS, std::memory_order_release);
  return result;
}

ze_result_t CudaDevice::CheckFailed(CUresult result) const {
  if (IsSticky(result)) lost_.store(true, std::memory_order_relaxed);
  // CUDA_ERROR_UNKNOWN may concern one call (importing an fd that is not memory) or a lost device.
  if (result == CUDA_ERROR_UNKNOWN && Probe() != ZE_RESULT_SUCCESS) return ZE_RESULT_ERROR_DEVICE_LOST;
  return ToZe(result);
}

ze_result_t CudaDevice::Probe() const {
  if (!active()) return ZE_RESULT_SUCCESS;
  MakeCurrent();
  const CUresult result = cu.cuStreamQuery(utility_);
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) return ZE_RESULT_SUCCESS;
  lost_.store(true, std::memory_order_relaxed);  // any error of our own stream means that the device is lost
  return ZE_RESULT_ERROR_DEVICE_LOST;
}

ze_result_t CudaDevice::GetStatus() const { return lost() ? ZE_RESULT_ERROR_DEVICE_LOST : Probe(); }

int CudaDevice::StreamPriority(ze_command_queue_priority_t priority) const {
  if (priority == ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH) return greatest_priority_;
  if (priority == ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_LOW) return least_priority_;
  return (least_priority_ + greatest_priority_) / 2;
}

void CudaDevice::GetProperties(ze_device_properties_t& properties) const {
  const ze_structure_type_t stype = properties.stype;
  properties = {};
  properties.type = ZE_DEVICE_TYPE_GPU;
  properties.vendorId = kNvidia;
  // CUDA does not report the device id.
  if (ze_pci_address_ext_t address{}; FindPciAddress(device_, address) == CUDA_SUCCESS)
    properties.deviceId = ReadPciDeviceId(SysfsFolder(address));
  if (Attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED) != 0) properties.flags |= ZE_DEVICE_PROPERTY_FLAG_INTEGRATED;
  if (Attribute(CU_DEVICE_ATTRIBUTE_ECC_ENABLED) != 0) properties.flags |= ZE_DEVICE_PROPERTY_FLAG_ECC;
  properties.coreClockRate = Attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1000;
  properties.maxMemAllocSize = memory_;
  properties.maxHardwareContexts = 1024;
  const uint32_t warp = Attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  properties.numThreadsPerEU =
      Attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / (warp == 0 ? 32 : warp);
  properties.physicalEUSimdWidth = warp;
  properties.numEUsPerSubslice = multiprocessors();
  properties.numSubslicesPerSlice = 1;
  properties.numSlices = 1;
  // Nanoseconds per tick, or ticks per second, depending on the structure's version.
  properties.timerResolution = stype == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2 ? 1'000'000'000 : 1;
  properties.timestampValidBits = 64;
  properties.kernelTimestampValidBits = 64;
  CUuuid uuid = {};
  static_cast<void>(cu.cuDeviceGetUuid(&uuid, device_));
  std::memcpy(properties.uuid.id, uuid.bytes, sizeof(uuid.bytes));
  if (cu.cuDeviceGetName(properties.name, sizeof(properties.name), device_) != CUDA_SUCCESS)
    std::strcpy(properties.name, "NVIDIA GPU");
}

void CudaDevice::GetComputeProperties(ze_device_compute_properties_t& properties) const {
  properties = {};
  properties.maxTotalGroupSize = Attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  properties.maxGroupSizeX = Attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
  properties.maxGroupSizeY = Attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
  properties.maxGroupSizeZ = Attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
  properties.maxGroupCountX = Attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
  properties.maxGroupCountY = Attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
  properties.maxGroupCountZ = Attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
  properties.maxSharedLocalMemory = Attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  properties.numSubGroupSizes = 1;
  properties.subGroupSizes[0] = Attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
}

void CudaDevice::GetModuleProperties(ze_device_module_properties_t& properties) const {
  constexpr ze_device_fp_flags_t kIeee = ZE_DEVICE_FP_FLAG_DENORM | ZE_DEVICE_FP_FLAG_INF_NAN |
                                         ZE_DEVICE_FP_FLAG_ROUND_TO_NEAREST |
                                         ZE_DEVICE_FP_FLAG_ROUND_TO_ZERO | ZE_DEVICE_FP_FLAG_ROUND_TO_INF |
                                         ZE_DEVICE_FP_FLAG_FMA | ZE_DEVICE_FP_FLAG_ROUNDED_DIVIDE_SQRT;
  properties = {};
  properties.flags =
      ZE_DEVICE_MODULE_FLAG_FP16 | ZE_DEVICE_MODULE_FLAG_FP64 | ZE_DEVICE_MODULE_FLAG_INT64_ATOMICS;
  properties.fp16flags = properties.fp32flags = properties.fp64flags = kIeee;
  properties.maxArgumentsSize = 4096;
  // "sm_90": the target of cubins, and the highest target of PTX.
  std::snprintf(reinterpret_cast<char*>(properties.nativeKernelSupported.id),
                sizeof(properties.nativeKernelSupported.id), "sm_%u%u",
                Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) % 100,
                Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) % 10);
}

void CudaDevice::GetMemoryAccessProperties(ze_device_memory_access_properties_t& properties) const {
  constexpr ze_memory_access_cap_flags_t kUse =
      ZE_MEMORY_ACCESS_CAP_FLAG_RW | ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT;
  constexpr ze_memory_access_cap_flags_t kAtomic =
      ZE_MEMORY_ACCESS_CAP_FLAG_ATOMIC | ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT_ATOMIC;
  properties.hostAllocCapabilities = kUse;
  properties.deviceAllocCapabilities = kUse | kAtomic;
  properties.sharedSingleDeviceAllocCapabilities = kUse;
  properties.sharedCrossDeviceAllocCapabilities = kUse;
  properties.sharedSystemAllocCapabilities = 0;
}

void CudaDevice::GetImageProperties(ze_device_image_properties_t& properties) const { properties = {}; }

void CudaDevice::GetExternalMemoryProperties(ze_device_external_memory_properties_t& properties) const {
  properties = {};
  properties.memoryAllocationImportTypes = ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD;
  properties.memoryAllocationExportTypes = ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD;
}

std::vector<ze_command_queue_group_properties_t> CudaDevice::QueueGroups() const {
  ze_command_queue_group_properties_t group{};
  group.flags = ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE | ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY;
  group.maxMemoryFillPatternSize = kMaxPatternSize;
  group.numQueues = queues();
  return {group};
}

std::vector<ze_device_memory_properties_t> CudaDevice::Memories() const {
  ze_device_memory_properties_t memory{};
  memory.maxClockRate = Attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) / 1000;
  memory.maxBusWidth = Attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  memory.totalSize = memory_;
  std::strcpy(memory.name, "device memory");
  return {memory};
}

xpud_peak_rates_t CudaDevice::PeakRates() const {
  // Of a multiprocessor in a cycle, by compute capability: multiplications with additions of float32, and of
  // float16 in the units for matrices. Newer ones are like the last.
  struct PerCycle {
    uint32_t capability, vectors, matrices;
  };
  constexpr PerCycle kTable[] = {{70, 64, 512},  {80, 64, 1024},  {86, 128, 512},   {87, 128, 512},
                                 {89, 128, 512}, {90, 128, 2048}, {100, 128, 4096}, {120, 128, 512}};
  const uint32_t capability = Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                              Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  PerCycle rates = {};
  for (const PerCycle& row : kTable)
    if (row.capability <= capability) rates = row;
  const uint64_t cycles = uint64_t{Attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)} * 1000 * multiprocessors();
  constexpr uint64_t kTransfersPerCycle = 2, kBitsPerByte = 8;
  const uint64_t bytes = uint64_t{Attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)} * 1000 *
                         kTransfersPerCycle * Attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) /
                         kBitsPerByte;
  return {bytes, cycles * rates.vectors, cycles * rates.matrices};
}

ze_result_t CudaDevice::GetPciProperties(ze_pci_ext_properties_t& properties) const {
  const CUresult result = FindPciAddress(device_, properties.address);
  if (result != CUDA_SUCCESS) return ToZe(result);
  properties.maxSpeed = ReadPciSpeed(SysfsFolder(properties.address));
  return ZE_RESULT_SUCCESS;
}

std::vector<ze_device_cache_properties_t> CudaDevice::Caches() const {
  ze_device_cache_properties_t cache{};
  cache.cacheSize = Attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  return {cache};
}

const Sensors* CudaDevice::sensors() const {
  std::call_once(sensors_once_, [&] {
    CUuuid uuid = {};
    if (cu.cuDeviceGetUuid(&uuid, device_) == CUDA_SUCCESS) sensors_ = OpenNvmlSensors(uuid);
  });
  return sensors_.get();
}

void CudaDevice::GetGlobalTimestamps(uint64_t& host, uint64_t& device) const {
  host = NowNs();
  device = 0;
  if (!active()) return;
  MutexLock lock(mutex_);
  MakeCurrent();
  if (Check(builtins_.StoreTime(clock_, utility_)) != ZE_RESULT_SUCCESS) return;
  static_cast<void>(WaitUntil(kClockTimeoutNs, [&] { return Check(cu.cuStreamQuery(utility_)); }));
  host = NowNs();
  device = std::atomic_ref<uint64_t>(*clock_).load(std::memory_order_acquire);
}

}  // namespace xpud::drivers::cuda
