// What this process may use of the machine: its processor, the CPUs and memory that affinity and control
// groups leave it. Read once by the device; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace xpud::drivers::cpu {

struct CpuInfo {
  std::string name;
  uint32_t vendor_id = 0;  // PCI vendor number of the maker; 0 when unknown
  uint32_t signature = 0;  // family, model, stepping as cpuid gives them
  uint32_t clock_mhz = 0;  // 0 when unknown
  uint32_t simd_bits = 128;
  uint64_t last_level_cache = 0;  // bytes; 0 when unknown
};
CpuInfo ReadCpuInfo();

// CPUs that the affinity mask and the CPU quota leave, or XPUD_CPU_WORKERS where set to a number from 1 to
// 1024.
uint32_t UsableCpus();

// Bytes: the lesser of physical memory and the control group's limit.
uint64_t UsableMemory();

}  // namespace xpud::drivers::cpu
