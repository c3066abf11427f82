#include "daemon/executor/level_zero/driver.h"

#include <dlfcn.h>
#include <level_zero/ze_api.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "daemon/executor/level_zero/back_end.h"
#include "daemon/executor/level_zero/level_zero_device.h"
#include "daemon/executor/level_zero/ze_status.h"
#include "proto/base/status_macros.h"
#include "proto/base/ze_ext.h"

namespace xpud::executor {
namespace {

constexpr char kIntelLibrary[] = "libze_intel_gpu.so.1";

absl::StatusOr<std::string> OwnDriverLibrary(const std::string& named) {
  if (!named.empty()) return named;
  std::error_code error;
  const auto binary = std::filesystem::canonical("/proc/self/exe", error);
  for (const char* relative : {"../lib/xpud/libze_xpud.so", "../lib/libze_xpud.so", "libze_xpud.so"}) {
    const auto path = std::filesystem::weakly_canonical(binary.parent_path() / relative, error);
    if (std::filesystem::exists(path, error)) return path.string();
  }
  return absl::NotFoundError(absl::StrCat("cannot find libze_xpud.so in ",
                                          (binary.parent_path() / "../lib").lexically_normal().string(),
                                          "; name it with --driver"));
}

// Level Zero's loader reads ZE_ENABLE_ALT_DRIVERS at the first zeInit. Intel's library is named only if there
// is an Intel GPU: with two libraries the loader wraps every handle, which slows every call.
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

// Finds a function that our driver library exports. The library is never unloaded.
template <typename Function>
absl::StatusOr<Function> Exported(const std::string& driver_library, const char* name) {
  ASSIGN_OR_RETURN(const std::string path, OwnDriverLibrary(driver_library));
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return absl::NotFoundError(absl::StrCat("cannot load the driver library: ", dlerror()));
  void* const function = dlsym(library, name);
  if (function == nullptr)
    return absl::NotFoundError(absl::StrCat(path, " is not a driver library of this version of xpud"));
  return reinterpret_cast<Function>(function);
}

// Returns why back ends of our driver library found no device, one line each; empty if all found devices.
// Call after zeInit.
std::string LoadReport(const std::string& driver_library) {
  const auto report = Exported<xpud_pfnGetLoadReport_t>(driver_library, "xpudGetLoadReport");
  const char* text = nullptr;
  return report.ok() && (*report)(&text) == ZE_RESULT_SUCCESS ? text : "";
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

absl::StatusOr<std::vector<BackEnd>> ListBackEnds(const std::string& driver_library) {
  ASSIGN_OR_RETURN(const auto list, Exported<xpud_pfnListBackEnds_t>(driver_library, XPUD_LIST_BACK_ENDS));
  const xpud_back_end_t* const* back_ends = nullptr;
  const uint32_t count = list(&back_ends);
  std::vector<BackEnd> found;
  for (uint32_t i = 0; i < count; ++i) {
    const xpud_back_end_t& from = *back_ends[i];
    found.push_back({from.name, from.kind, TargetOf(from.code), from.own_process != 0, from.append_threads});
  }
  return found;
}

absl::Status SetDriverEnvironment(const std::string& driver_library, std::span<const std::string> back_ends) {
  if (std::getenv("ZE_ENABLE_ALT_DRIVERS") == nullptr) {
    ASSIGN_OR_RETURN(std::string libraries, OwnDriverLibrary(driver_library));
    if (HasIntelRenderNode()) absl::StrAppend(&libraries, ",", kIntelLibrary);
    setenv("ZE_ENABLE_ALT_DRIVERS", libraries.c_str(), 1);
  }
  setenv("ZES_ENABLE_SYSMAN", "1", 0);  // required by Intel's driver for sensors
  setenv("XPUD_BACK_ENDS", absl::StrJoin(back_ends, ",").c_str(), 1);
  return absl::OkStatus();
}

absl::Status LoadDrivers(const DriverOptions& options) {
  const ze_result_t result = zeInit(0);
  if (result != ZE_RESULT_ERROR_UNINITIALIZED) return ToStatus(result, "zeInit");
  return absl::NotFoundError(
      absl::StrCat("no device '", options.device, "'; ",
                   absl::StrReplaceAll(LoadReport(options.driver_library), {{"\n", "; "}})));
}

absl::StatusOr<std::vector<std::unique_ptr<LevelZeroDevice>>> OpenLevelZeroDevices(
    const DriverOptions& options) {
  RETURN_IF_ERROR(LoadDrivers(options));
  ASSIGN_OR_RETURN(const auto drivers, Drivers());
  const std::string report = LoadReport(options.driver_library);
  for (const auto line : absl::StrSplit(report, '\n', absl::SkipEmpty()))
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
  // GPUs first, the CPU device last, as the fallback.
  for (auto& cpu : cpus) devices.push_back(std::move(cpu));
  if (devices.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no device '", options.device, "'; available: ", absl::StrJoin(seen, ", "),
                     report.empty() ? "" : "; ", absl::StrReplaceAll(report, {{"\n", "; "}})));
  }
  return devices;
}

std::string LevelZeroVersion() {
  return absl::StrCat(ZE_MAJOR_VERSION(ZE_API_VERSION_CURRENT), ".",
                      ZE_MINOR_VERSION(ZE_API_VERSION_CURRENT));
}

}  // namespace xpud::executor
