// Functions that a Level Zero driver may have beyond the specification's tables; see proto/base/ze_ext.h.
#pragma once

#include <level_zero/ze_api.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "daemon/executor/level_zero/ze_status.h"
#include "proto/base/status_macros.h"
#include "proto/base/ze_ext.h"

namespace xpud::executor {

// Null if the driver lacks them. Of a group, the first one is found last, so it says whether all are there.
struct DriverFunctions {
  // `raw`: the driver's own handle; see raw_handle.h.
  static absl::StatusOr<DriverFunctions> Find(ze_driver_handle_t driver, ze_driver_handle_t raw);

  xpud_pfnAppendLaunchKernelWithArguments_t launch = nullptr;
  xpud_pfnCommandListHostSynchronize_t synchronize = nullptr;
  xpud_pfnAppendWriteValue64_t write_value = nullptr;
  xpud_pfnModuleCreate_t create_module = nullptr;

  xpud_pfnImportExternalPointer_t import_pointer = nullptr;
  xpud_pfnReleaseImportedPointer_t release_pointer = nullptr;

  xpud_pfnBeginGraphCapture_t begin_capture = nullptr;
  xpud_pfnEndGraphCapture_t end_capture = nullptr;
  xpud_pfnInstantiateGraph_t instantiate = nullptr;
  xpud_pfnAppendGraph_t append_graph = nullptr;
  xpud_pfnGraphDestroy_t destroy_graph = nullptr;
  xpud_pfnExecutableGraphDestroy_t destroy_executable = nullptr;

  xpud_pfnStartTrace_t start_trace = nullptr;
  xpud_pfnFlushTrace_t flush_trace = nullptr;
  xpud_pfnStopTrace_t stop_trace = nullptr;
  xpud_pfnSetTraceTag_t set_trace_tag = nullptr;
  xpud_pfnCountCaptured_t count_captured = nullptr;

 private:
  absl::Status FindImport(ze_driver_handle_t driver);
  absl::Status FindGraphs(ze_driver_handle_t driver);
  absl::Status FindTraces(ze_driver_handle_t driver);
};

// Finds an extension function. Unimplemented means that the driver lacks it.
template <typename Function>
absl::Status FindFunction(ze_driver_handle_t driver, const char* name, Function& function) {
  void* address = nullptr;
  const ze_result_t found = zeDriverGetExtensionFunctionAddress(driver, name, &address);
  const bool absent = found == ZE_RESULT_ERROR_INVALID_ARGUMENT ||
                      found == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE ||
                      (found == ZE_RESULT_SUCCESS && address == nullptr);
  if (absent) return absl::UnimplementedError(absl::StrCat("the Level Zero driver has no ", name));
  RETURN_IF_ERROR(ToStatus(found, "zeDriverGetExtensionFunctionAddress"));
  function = reinterpret_cast<Function>(address);
  return absl::OkStatus();
}

// For optional functions: turns Unimplemented into OK.
inline absl::Status OkIfAbsent(const absl::Status& found) {
  return absl::IsUnimplemented(found) ? absl::OkStatus() : found;
}

}  // namespace xpud::executor
