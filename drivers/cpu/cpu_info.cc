#include "drivers/cpu/cpu_info.h"

#include <cpuid.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

namespace xpud::drivers::cpu {
namespace {

std::string ReadBrand() {
  std::array<uint32_t, 12> words{};
  for (uint32_t leaf = 0; leaf < 3; ++leaf) {
    uint32_t* const out = &words[leaf * 4];
    if (!__get_cpuid(0x80000002u + leaf, &out[0], &out[1], &out[2], &out[3])) return "x86-64 CPU";
  }
  std::string brand(reinterpret_cast<const char*>(words.data()), sizeof(words));
  brand.resize(std::strlen(brand.c_str()));
  brand.erase(0, brand.find_first_not_of(' '));
  while (!brand.empty() && brand.back() == ' ') brand.pop_back();
  return brand.empty() ? "x86-64 CPU" : brand;
}

uint32_t ReadVendorId() {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid(0, &eax, &ebx, &ecx, &edx)) return 0;
  if (ebx == signature_INTEL_ebx) return 0x8086;
  return ebx == signature_AMD_ebx ? 0x1022 : 0;
}

uint32_t ReadClockMhz() {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0x16, &eax, &ebx, &ecx, &edx) && (eax & 0xffff) != 0) return eax & 0xffff;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (line.rfind("cpu MHz", 0) == 0 && colon != std::string::npos) {
      return static_cast<uint32_t>(std::strtod(line.c_str() + colon + 1, nullptr));
    }
  }
  return 0;
}

uint32_t ReadSimdBits() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return 512;
  return __builtin_cpu_supports("avx") ? 256 : 128;
}

// Returns this process's directory in a control group hierarchy; "" selects the unified one (v2).
std::string GroupPath(const std::string& controller) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == (controller.empty() ? ",," : "," + controller + ",") ||
        (!controller.empty() && controllers.find("," + controller + ",") != std::string::npos)) {
      return line.substr(second + 1);
    }
  }
  return "/";
}

// Calls `read` with each directory from this process's group up to the hierarchy's root, because limits of
// all levels apply. In a container the group's path may not exist; then the root has the limit.
template <typename Read>
void ForEachGroup(const std::string& root, std::string path, Read&& read) {
  for (;;) {
    read(root + path);
    if (path.empty() || path == "/") break;
    path.erase(path.find_last_of('/'));
  }
  read(root);
}

std::optional<std::string> FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<uint64_t> ReadNumber(const std::string& path) {
  const std::optional<std::string> line = FirstLine(path);
  if (!line || line->empty() || line->find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::strtoull(line->c_str(), nullptr, 10);
}

// Returns how many CPUs the quotas allow; infinity if there is no quota.
double CpuQuota() {
  double quota = 1e9;
  ForEachGroup("/sys/fs/cgroup", GroupPath(""), [&](const std::string& group) {
    const std::optional<std::string> line = FirstLine(group + "/cpu.max");
    double allowed = 0, period = 0;
    if (line && std::istringstream(*line) >> allowed >> period && period > 0) {
      quota = std::min(quota, allowed / period);
    }
  });
  ForEachGroup("/sys/fs/cgroup/cpu", GroupPath("cpu"), [&](const std::string& group) {
    // -1 means no limit, and is not parsed as a number.
    const auto allowed = ReadNumber(group + "/cpu.cfs_quota_us");
    const auto period = ReadNumber(group + "/cpu.cfs_period_us");
    if (allowed && period && *period > 0) {
      quota = std::min(quota, static_cast<double>(*allowed) / static_cast<double>(*period));
    }
  });
  return quota;
}

// Returns how many bytes the control groups allow; infinite if they set no limit ("max" is not a number).
uint64_t GroupMemoryLimit() {
  uint64_t limit = UINT64_MAX;
  const auto take = [&](const std::string& file) {
    limit = std::min(limit, ReadNumber(file).value_or(UINT64_MAX));
  };
  ForEachGroup("/sys/fs/cgroup", GroupPath(""),
               [&](const std::string& group) { take(group + "/memory.max"); });
  ForEachGroup("/sys/fs/cgroup/memory", GroupPath("memory"),
               [&](const std::string& group) { take(group + "/memory.limit_in_bytes"); });
  return limit;
}

// Returns the number in an environment variable, or nullopt if it is not from 1 to `most`.
std::optional<uint32_t> ReadVariable(const char* name, unsigned long most) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  const unsigned long asked = std::strtoul(text, nullptr, 10);
  return asked >= 1 && asked <= most ? std::optional(static_cast<uint32_t>(asked)) : std::nullopt;
}

}  // namespace

CpuInfo ReadCpuInfo() {
  CpuInfo info;
  info.name = ReadBrand();
  info.vendor_id = ReadVendorId();
  uint32_t ebx = 0, ecx = 0, edx = 0;
  __get_cpuid(1, &info.signature, &ebx, &ecx, &edx);
  info.clock_mhz = ReadClockMhz();
  info.simd_bits = ReadSimdBits();
  constexpr uint32_t kUnits = 2;  // for vectors, in most processors
  info.float_operations = info.simd_bits / 32 * kUnits;
  const bool has_amx = __builtin_cpu_supports("amx-bf16");
  const bool has_vectors = __builtin_cpu_supports("avx512bf16");
  constexpr uint32_t kAmx = 16 * 16 * 32 / 16;  // tiles of 16 x 16 by 32, in 16 cycles
  info.half_operations = has_amx ? kAmx : has_vectors ? 2 * info.float_operations : info.float_operations;
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  info.last_level_cache = cache > 0 ? static_cast<uint64_t>(cache) : 0;
  return info;
}

uint32_t DeviceCount() { return ReadVariable("XPUD_CPU_DEVICES", kMaxCpuDevices).value_or(1); }

std::optional<std::string> PciAddressText(uint32_t index) {
  const char* part = std::getenv("XPUD_CPU_PCI");
  for (; part != nullptr && index > 0; --index) {
    part = std::strchr(part, ',');
    if (part != nullptr) ++part;
  }
  if (part == nullptr) return std::nullopt;
  return std::string(part, std::strcspn(part, ","));
}

bool IsPlain() { return ReadVariable("XPUD_CPU_PLAIN", 1).has_value(); }

uint32_t UsableCpus() {
  if (const auto asked = ReadVariable("XPUD_CPU_WORKERS", 1024)) return *asked;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  // The call fails on machines with more CPUs than the mask holds.
  const bool known = sched_getaffinity(0, sizeof(mask), &mask) == 0;
  const uint32_t allowed =
      known ? static_cast<uint32_t>(CPU_COUNT(&mask)) : std::thread::hardware_concurrency();
  const double quota = CpuQuota();
  const double whole = std::max(1.0, quota + 0.999);  // rounds up
  return std::max(1u, static_cast<uint32_t>(std::min(static_cast<double>(allowed), whole)));
}

uint64_t UsableMemory() {
  const uint64_t physical =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return std::min(physical, GroupMemoryLimit());
}

}  // namespace xpud::drivers::cpu
