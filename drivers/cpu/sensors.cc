#include "drivers/cpu/sensors.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

namespace xpud::drivers::cpu {
namespace {

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

std::string ReadWord(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

std::vector<std::string> FoldersOf(const std::string& path) {
  std::vector<std::string> folders;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error))
    folders.push_back(entry.path().string());
  std::sort(folders.begin(), folders.end());
  return folders;
}

}  // namespace

CpuSensors::CpuSensors(const std::string& root) : root_(root) {
  for (const std::string& folder : FoldersOf(root + "/sys/class/hwmon")) {
    const std::string name = ReadWord(folder + "/name");
    if (name == "coretemp" || name == "k10temp" || name == "zenpower" || name == "cpu_thermal")
      temperatures_.push_back(folder + "/temp1_input");  // the package's sensor, or the only one
  }
  for (const std::string& folder : FoldersOf(root + "/sys/class/powercap")) {
    if (ReadWord(folder + "/name").starts_with("package-")) energies_.push_back(folder + "/energy_uj");
  }
}

ze_result_t CpuSensors::ReadMemory(uint64_t& size, uint64_t& free) const {
  std::ifstream file(root_ + "/proc/meminfo");
  std::string line;
  size = free = 0;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    uint64_t kilobytes = 0;
    if (!(words >> name >> kilobytes)) continue;
    if (name == "MemTotal:") size = kilobytes * 1024;
    if (name == "MemAvailable:") free = kilobytes * 1024;
  }
  return size != 0 ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

ze_result_t CpuSensors::ReadEnergy(uint64_t& microjoules) const {
  if (energies_.empty()) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  microjoules = 0;
  for (const std::string& path : energies_) {
    const auto energy = ReadNumber(path);
    if (!energy) return ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS;
    microjoules += *energy;
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t CpuSensors::ReadTemperature(double& celsius) const {
  std::optional<uint64_t> hottest;
  for (const std::string& path : temperatures_) hottest = std::max(hottest, ReadNumber(path));
  if (!hottest) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  celsius = static_cast<double>(*hottest) / 1000;
  return ZE_RESULT_SUCCESS;
}

ze_result_t CpuSensors::ReadFrequency(double& megahertz, zes_freq_throttle_reason_flags_t& reasons) const {
  std::ifstream file(root_ + "/proc/cpuinfo");
  std::string line;
  double sum = 0;
  int cores = 0;
  while (std::getline(file, line)) {
    if (!line.starts_with("cpu MHz")) continue;
    sum += std::strtod(line.c_str() + line.find(':') + 1, nullptr);
    ++cores;
  }
  if (cores == 0) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  megahertz = sum / cores;
  reasons = 0;
  return ZE_RESULT_SUCCESS;
}

}  // namespace xpud::drivers::cpu
