#include "drivers/cuda/nvml.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace xpud::drivers::cuda {
namespace {

// The part of nvml.h that we use.
using nvmlDevice_t = struct nvmlDevice_st*;
enum nvmlReturn_t : int { NVML_SUCCESS = 0, NVML_ERROR_NOT_SUPPORTED = 3, NVML_ERROR_GPU_IS_LOST = 15 };
enum nvmlClockType_t : int { NVML_CLOCK_SM = 1 };
constexpr unsigned long long nvmlClocksThrottleReasonApplicationsClocksSetting = 0x02,
                             nvmlClocksThrottleReasonSwPowerCap = 0x04,
                             nvmlClocksThrottleReasonHwSlowdown = 0x08,
                             nvmlClocksThrottleReasonSyncBoost = 0x10,
                             nvmlClocksThrottleReasonSwThermalSlowdown = 0x20,
                             nvmlClocksThrottleReasonHwThermalSlowdown = 0x40,
                             nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 0x80;
enum nvmlTemperatureSensors_t : int { NVML_TEMPERATURE_GPU = 0 };
struct nvmlMemory_t {
  unsigned long long total, free, used;
};

struct Functions {
  nvmlReturn_t (*init)();
  nvmlReturn_t (*get_handle)(const char* uuid, nvmlDevice_t*);
  nvmlReturn_t (*get_memory)(nvmlDevice_t, nvmlMemory_t*);
  nvmlReturn_t (*get_energy)(nvmlDevice_t, unsigned long long* millijoules);
  nvmlReturn_t (*get_temperature)(nvmlDevice_t, nvmlTemperatureSensors_t, unsigned* celsius);
  // Null if the library lacks them.
  nvmlReturn_t (*get_clock)(nvmlDevice_t, nvmlClockType_t, unsigned* megahertz);
  nvmlReturn_t (*get_throttle_reasons)(nvmlDevice_t, unsigned long long*);
  bool usable;
};

template <typename Function>
bool Find(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  return function != nullptr;
}

Functions Load() {
  Functions functions{};
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return functions;
  functions.usable = Find(library, "nvmlInit_v2", functions.init) &&
                     Find(library, "nvmlDeviceGetHandleByUUID", functions.get_handle) &&
                     Find(library, "nvmlDeviceGetMemoryInfo", functions.get_memory) &&
                     Find(library, "nvmlDeviceGetTotalEnergyConsumption", functions.get_energy) &&
                     Find(library, "nvmlDeviceGetTemperature", functions.get_temperature) &&
                     functions.init() == NVML_SUCCESS;
  (void)Find(library, "nvmlDeviceGetClockInfo", functions.get_clock);
  (void)Find(library, "nvmlDeviceGetCurrentClocksThrottleReasons", functions.get_throttle_reasons);
  return functions;
}

const Functions& Nvml() {
  static const Functions functions = Load();
  return functions;
}

ze_result_t ToZe(nvmlReturn_t result) {
  if (result == NVML_SUCCESS) return ZE_RESULT_SUCCESS;
  if (result == NVML_ERROR_NOT_SUPPORTED) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  return result == NVML_ERROR_GPU_IS_LOST ? ZE_RESULT_ERROR_DEVICE_LOST : ZE_RESULT_ERROR_UNKNOWN;
}

zes_freq_throttle_reason_flags_t ToZe(unsigned long long reasons) {
  constexpr struct {
    unsigned long long nvml;
    zes_freq_throttle_reason_flag_t ze;
  } kPairs[] = {
      {nvmlClocksThrottleReasonSwPowerCap, ZES_FREQ_THROTTLE_REASON_FLAG_AVE_PWR_CAP},
      {nvmlClocksThrottleReasonHwPowerBrakeSlowdown, ZES_FREQ_THROTTLE_REASON_FLAG_PSU_ALERT},
      {nvmlClocksThrottleReasonSwThermalSlowdown, ZES_FREQ_THROTTLE_REASON_FLAG_THERMAL_LIMIT},
      {nvmlClocksThrottleReasonHwThermalSlowdown, ZES_FREQ_THROTTLE_REASON_FLAG_THERMAL_LIMIT},
      {nvmlClocksThrottleReasonHwSlowdown, ZES_FREQ_THROTTLE_REASON_FLAG_HW_RANGE},
      {nvmlClocksThrottleReasonApplicationsClocksSetting, ZES_FREQ_THROTTLE_REASON_FLAG_SW_RANGE},
      {nvmlClocksThrottleReasonSyncBoost, ZES_FREQ_THROTTLE_REASON_FLAG_SW_RANGE},
  };
  zes_freq_throttle_reason_flags_t flags = 0;
  for (const auto& pair : kPairs)
    if ((reasons & pair.nvml) != 0) flags |= pair.ze;
  return flags;
}

// Returns "GPU-01234567-89ab-cdef-0123-456789abcdef".
std::string TextOf(const CUuuid& uuid) {
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += hex;
  }
  return text;
}

class NvmlSensors final : public Sensors {
 public:
  explicit NvmlSensors(nvmlDevice_t device) : device_(device) {}

  ze_result_t ReadMemory(uint64_t& size, uint64_t& free) const override {
    nvmlMemory_t memory{};
    const ze_result_t result = ToZe(Nvml().get_memory(device_, &memory));
    size = memory.total;
    free = memory.free;
    return result;
  }
  ze_result_t ReadEnergy(uint64_t& microjoules) const override {
    unsigned long long millijoules = 0;
    const ze_result_t result = ToZe(Nvml().get_energy(device_, &millijoules));
    microjoules = millijoules * 1000;
    return result;
  }
  ze_result_t ReadTemperature(double& celsius) const override {
    unsigned value = 0;
    const ze_result_t result = ToZe(Nvml().get_temperature(device_, NVML_TEMPERATURE_GPU, &value));
    celsius = value;
    return result;
  }
  ze_result_t ReadFrequency(double& megahertz, zes_freq_throttle_reason_flags_t& reasons) const override {
    if (Nvml().get_clock == nullptr) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    unsigned value = 0;
    const ze_result_t result = ToZe(Nvml().get_clock(device_, NVML_CLOCK_SM, &value));
    megahertz = value;
    unsigned long long why = 0;
    if (Nvml().get_throttle_reasons != nullptr && Nvml().get_throttle_reasons(device_, &why) == NVML_SUCCESS)
      reasons = ToZe(why);
    return result;
  }

 private:
  const nvmlDevice_t device_;
};

}  // namespace

std::unique_ptr<Sensors> OpenNvmlSensors(const CUuuid& uuid) {
  nvmlDevice_t device = nullptr;
  if (!Nvml().usable || Nvml().get_handle(TextOf(uuid).c_str(), &device) != NVML_SUCCESS) return nullptr;
  return std::make_unique<NvmlSensors>(device);
}

}  // namespace xpud::drivers::cuda
