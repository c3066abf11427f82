// The processor, CPUs and memory that this process may use, by affinity mask and control groups. Read once by
// the device. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace xpud::drivers::cpu {

struct CpuInfo {
  std::string name;
  uint32_t vendor_id = 0;  // PCI vendor number of the maker; 0 when unknown
  uint32_t signature = 0;  // family, model, stepping as cpuid gives them
  uint32_t clock_mhz = 0;  // 0 when unknown
  uint32_t simd_bits = 128;
  uint32_t float_operations = 0;  // of one CPU in a cycle: multiplications with additions
  uint32_t half_operations = 0;   // likewise, on bfloat16
  uint64_t last_level_cache = 0;  // bytes; 0 when unknown
};
CpuInfo ReadCpuInfo();

// Returns the number of devices to expose: XPUD_CPU_DEVICES if that is set to a number from 1 to
// kMaxCpuDevices, otherwise 1. Tests use it to have a machine with several devices.
inline constexpr uint32_t kMaxCpuDevices = 16;
uint32_t DeviceCount();
bool IsPlain();  // XPUD_CPU_PLAIN=1: see driver.h
// Returns part `index` of XPUD_CPU_PCI, which has the devices' addresses on PCI for tests, with commas
// between them; nullopt if there is none.
std::optional<std::string> PciAddressText(uint32_t index);

// Returns the number of CPUs that the affinity mask and the CPU quota allow, or XPUD_CPU_WORKERS if that is
// set to a number from 1 to 1024.
uint32_t UsableCpus();

// Returns the lesser of physical memory and the control group's limit, in bytes.
uint64_t UsableMemory();

}  // namespace xpud::drivers::cpu
