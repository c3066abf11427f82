#include "daemon/executor/level_zero/driver.h"

#include <level_zero/ze_api.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "daemon/executor/level_zero/level_zero_device.h"
#include "daemon/executor/level_zero/ze_status.h"
#include "proto/base/status_macros.h"
#include "proto/base/ze_ext.h"

namespace xpud::executor {
namespace {

constexpr char kIntelLibrary[] = "libze_intel_gpu.so.1";

absl::StatusOr<std::string> OwnDriverLibrary(const DriverOptions& options) {
  if (!options.driver_library.empty()) return options.driver_library;
  std::error_code error;
  const auto binary = std::filesystem::canonical("/proc/self/exe", error);
  for (const char* relative : {"../lib/xpud/libze_xpud.so", "../lib/libze_xpud.so", "libze_xpud.so"}) {
    const auto path = std::filesystem::weakly_canonical(binary.parent_path() / relative, error);
    if (std::filesystem::exists(path, error)) return path.string();
  }
  return absl::NotFoundError(absl::StrCat("libze_xpud.so is not in ",
                                          (binary.parent_path() / "../lib").lexically_normal().string(),
                                          "; name it with --driver"));
}

// Level Zero's loader reads the list at the first zeInit. Intel's library is named only where there is an
// Intel GPU: with two libraries the loader wraps every handle, which costs 30 ns a call.
bool HasIntelRenderNode() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/drm", error)) {
    if (entry.path().filename().string().rfind("renderD", 0) != 0) continue;
    const auto driver =
        std::filesystem::read_symlink(entry.path() / "device/driver", error).filename().string();
    if (driver == "i915" || driver == "xe") return true;
  }
  return false;
}

absl::StatusOr<std::vector<ze_driver_handle_t>> Drivers() {
  uint32_t count = 0;
  RETURN_IF_ZE_ERROR(zeDriverGet(&count, nullptr));
  std::vector<ze_driver_handle_t> drivers(count);
  RETURN_IF_ZE_ERROR(zeDriverGet(&count, drivers.data()));
  return drivers;
}

// Why back ends of our driver library found no device, a line each; empty when all did.
std::string LoadReport(const std::vector<ze_driver_handle_t>& drivers) {
  for (ze_driver_handle_t driver : drivers) {
    void* address = nullptr;
    const char* report = nullptr;
    if (zeDriverGetExtensionFunctionAddress(driver, "xpudGetLoadReport", &address) == ZE_RESULT_SUCCESS &&
        reinterpret_cast<xpud_pfnGetLoadReport_t>(address)(&report) == ZE_RESULT_SUCCESS) {
      return report;
    }
  }
  return "";
}

absl::StatusOr<std::vector<ze_device_handle_t>> DevicesOf(ze_driver_handle_t driver) {
  uint32_t count = 0;
  RETURN_IF_ZE_ERROR(zeDeviceGet(driver, &count, nullptr));
  std::vector<ze_device_handle_t> devices(count);
  RETURN_IF_ZE_ERROR(zeDeviceGet(driver, &count, devices.data()));
  return devices;
}

bool IsWanted(const std::string& wanted, const LevelZeroDevice& device) {
  return wanted == "auto" || wanted == device.properties().vendor || wanted == device.properties().kind;
}

}  // namespace

absl::Status LoadDrivers(const DriverOptions& options) {
  if (std::getenv("ZE_ENABLE_ALT_DRIVERS") == nullptr) {
    ASSIGN_OR_RETURN(std::string libraries, OwnDriverLibrary(options));
    if (HasIntelRenderNode()) absl::StrAppend(&libraries, ",", kIntelLibrary);
    setenv("ZE_ENABLE_ALT_DRIVERS", libraries.c_str(), 1);
  }
  setenv("ZES_ENABLE_SYSMAN", "1", 0);  // Intel's driver reads sensors only then
  RETURN_IF_ZE_ERROR(zeInit(0));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::unique_ptr<LevelZeroDevice>>> OpenLevelZeroDevices(
    const DriverOptions& options) {
  RETURN_IF_ERROR(LoadDrivers(options));
  ASSIGN_OR_RETURN(const auto drivers, Drivers());
  const std::string report = LoadReport(drivers);
  for (const auto line : absl::StrSplit(options.report ? report : "", '\n', absl::SkipEmpty()))
    spdlog::info("back_end_without_device reason=\"{}\"", std::string(line));
  std::vector<std::unique_ptr<LevelZeroDevice>> devices, cpus;
  std::vector<std::string> seen;
  for (ze_driver_handle_t driver : drivers) {
    ASSIGN_OR_RETURN(const auto handles, DevicesOf(driver));
    for (ze_device_handle_t handle : handles) {
      ASSIGN_OR_RETURN(auto device, LevelZeroDevice::Open(driver, handle, options.asynchronous));
      seen.push_back(device->properties().vendor);
      if (!IsWanted(options.device, *device)) continue;
      (device->properties().kind == "cpu" ? cpus : devices).push_back(std::move(device));
    }
  }
  // GPUs first; the CPU device is always there to fall back to.
  for (auto& cpu : cpus) devices.push_back(std::move(cpu));
  if (devices.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no device '", options.device, "'; there is: ", absl::StrJoin(seen, ", "),
                     report.empty() ? "" : "; ", absl::StrReplaceAll(report, {{"\n", "; "}})));
  }
  return devices;
}

std::string LevelZeroVersion() {
  return absl::StrCat(ZE_MAJOR_VERSION(ZE_API_VERSION_CURRENT), ".",
                      ZE_MINOR_VERSION(ZE_API_VERSION_CURRENT));
}

}  // namespace xpud::executor
