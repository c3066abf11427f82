#include "drivers/cpu/device.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "drivers/cpu/module.h"
#include "drivers/frontend/clock.h"
#include "drivers/frontend/pci.h"

namespace xpud::drivers::cpu {
namespace {

template <size_t kSize>
void CopyName(char (&out)[kSize], std::string_view name) {
  out[name.copy(out, kSize - 1)] = '\0';
}

// Several devices are told apart by their names.
CpuInfo InfoOf(uint32_t index, uint32_t count) {
  CpuInfo info = ReadCpuInfo();
  if (count > 1) info.name += " #" + std::to_string(index);
  return info;
}

}  // namespace

CpuDevice::CpuDevice(const Driver* driver, uint32_t index, uint32_t count)
    : Device(driver),
      info_(InfoOf(index, count)),
      index_(index),
      memory_(UsableMemory() / count),
      pool_(std::max(UsableCpus() / count, 1u)) {}

// A CPU is not on PCI, but where a test says so.
ze_result_t CpuDevice::GetPciProperties(ze_pci_ext_properties_t& properties) const {
  const std::optional<std::string> text = PciAddressText(index_);
  if (!text || !ReadPciAddress(text->c_str(), properties.address)) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  properties.maxSpeed = {-1, -1, -1};  // unknown
  return ZE_RESULT_SUCCESS;
}

bool CpuDevice::Charge(uint64_t bytes) {
  const uint64_t before = charged_.fetch_add(bytes, std::memory_order_relaxed);
  if (before <= memory_ && bytes <= memory_ - before) return true;
  Discharge(bytes);
  return false;
}

void CpuDevice::GetProperties(ze_device_properties_t& properties) const {
  const ze_structure_type_t stype = properties.stype;
  properties = {};
  properties.type = ZE_DEVICE_TYPE_CPU;
  properties.vendorId = info_.vendor_id;
  properties.deviceId = info_.signature;
  properties.flags = ZE_DEVICE_PROPERTY_FLAG_INTEGRATED | ZE_DEVICE_PROPERTY_FLAG_ONDEMANDPAGING;
  properties.coreClockRate = info_.clock_mhz;
  properties.maxMemAllocSize = memory_;
  properties.maxHardwareContexts = 1024;
  properties.numThreadsPerEU = 1;
  properties.physicalEUSimdWidth = info_.simd_bits / 32;
  properties.numEUsPerSubslice = pool_.workers();
  properties.numSubslicesPerSlice = 1;
  properties.numSlices = 1;
  // Nanoseconds per tick, or ticks per second, depending on the structure's version.
  properties.timerResolution = stype == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2 ? 1'000'000'000 : 1;
  properties.timestampValidBits = 64;
  properties.kernelTimestampValidBits = 64;
  std::memcpy(properties.uuid.id, "xpud-cpu", 8);
  std::memcpy(properties.uuid.id + 8, &info_.signature, sizeof(info_.signature));
  std::memcpy(properties.uuid.id + 12, &index_, sizeof(index_));
  CopyName(properties.name, info_.name);
}

void CpuDevice::GetComputeProperties(ze_device_compute_properties_t& properties) const {
  properties = {};
  properties.maxTotalGroupSize = 1;
  properties.maxGroupSizeX = properties.maxGroupSizeY = properties.maxGroupSizeZ = 1;
  properties.maxGroupCountX = properties.maxGroupCountY = properties.maxGroupCountZ = UINT32_MAX;
  properties.numSubGroupSizes = 1;
  properties.subGroupSizes[0] = 1;
}

void CpuDevice::GetModuleProperties(ze_device_module_properties_t& properties) const {
  constexpr ze_device_fp_flags_t kIeee = ZE_DEVICE_FP_FLAG_DENORM | ZE_DEVICE_FP_FLAG_INF_NAN |
                                         ZE_DEVICE_FP_FLAG_ROUND_TO_NEAREST | ZE_DEVICE_FP_FLAG_FMA |
                                         ZE_DEVICE_FP_FLAG_ROUNDED_DIVIDE_SQRT;
  properties = {};
  properties.flags = ZE_DEVICE_MODULE_FLAG_FP64 | ZE_DEVICE_MODULE_FLAG_INT64_ATOMICS;
  properties.fp32flags = properties.fp64flags = kIeee;
  properties.maxArgumentsSize = kMaxArgumentsSize;
  std::memcpy(properties.nativeKernelSupported.id, "xpud-x86-64-elf", sizeof("xpud-x86-64-elf"));
}

void CpuDevice::GetMemoryAccessProperties(ze_device_memory_access_properties_t& properties) const {
  constexpr ze_memory_access_cap_flags_t kAll =
      ZE_MEMORY_ACCESS_CAP_FLAG_RW | ZE_MEMORY_ACCESS_CAP_FLAG_ATOMIC | ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT |
      ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT_ATOMIC;
  properties.hostAllocCapabilities = kAll;
  properties.deviceAllocCapabilities = kAll;
  properties.sharedSingleDeviceAllocCapabilities = kAll;
  properties.sharedCrossDeviceAllocCapabilities = kAll;
  properties.sharedSystemAllocCapabilities = kAll;
}

void CpuDevice::GetImageProperties(ze_device_image_properties_t& properties) const { properties = {}; }

void CpuDevice::GetExternalMemoryProperties(ze_device_external_memory_properties_t& properties) const {
  properties = {};
  if (!driver()->HasExtensions()) return;
  properties.memoryAllocationImportTypes = ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD;
  properties.memoryAllocationExportTypes = ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD;
}

std::vector<ze_command_queue_group_properties_t> CpuDevice::QueueGroups() const {
  ze_command_queue_group_properties_t group{};
  group.flags = ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE | ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY;
  group.maxMemoryFillPatternSize = 128;
  group.numQueues = queues();
  return {group};
}

std::vector<ze_device_memory_properties_t> CpuDevice::Memories() const {
  ze_device_memory_properties_t memory{};
  memory.maxBusWidth = 64;
  memory.totalSize = memory_;
  CopyName(memory.name, "DRAM");
  return {memory};
}

std::vector<ze_device_cache_properties_t> CpuDevice::Caches() const {
  ze_device_cache_properties_t cache{};
  cache.cacheSize = info_.last_level_cache;
  return {cache};
}

xpud_peak_rates_t CpuDevice::PeakRates() const {
  const uint64_t cycles = uint64_t{info_.clock_mhz} * 1'000'000 * pool_.workers();
  return {0, cycles * info_.float_operations, cycles * info_.half_operations};
}

void CpuDevice::GetGlobalTimestamps(uint64_t& host, uint64_t& device) const { host = device = NowNs(); }

}  // namespace xpud::drivers::cpu
