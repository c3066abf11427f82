#include "daemon/executor/level_zero/driver_functions.h"

namespace xpud::executor {

absl::StatusOr<DriverFunctions> DriverFunctions::Find(ze_driver_handle_t driver, ze_driver_handle_t raw) {
  DriverFunctions f;
  RETURN_IF_ERROR(OkIfAbsent(FindFunction(driver, "zeCommandListAppendLaunchKernelWithArguments", f.launch)));
  RETURN_IF_ERROR(OkIfAbsent(FindFunction(driver, "zeCommandListHostSynchronize", f.synchronize)));
  // A module that a driver's own function made is not one of the loader's, where the loader wraps handles.
  if (raw == driver) RETURN_IF_ERROR(OkIfAbsent(FindFunction(driver, "xpudModuleCreate", f.create_module)));
  RETURN_IF_ERROR(OkIfAbsent(FindFunction(driver, "xpudCommandListAppendWriteValue64", f.write_value)));
  RETURN_IF_ERROR(OkIfAbsent(f.FindImport(driver)));
  RETURN_IF_ERROR(OkIfAbsent(f.FindTraces(driver)));
  RETURN_IF_ERROR(OkIfAbsent(f.FindGraphs(driver)));
  return f;
}

absl::Status DriverFunctions::FindImport(ze_driver_handle_t driver) {
  RETURN_IF_ERROR(FindFunction(driver, "zexDriverReleaseImportedPointer", release_pointer));
  return FindFunction(driver, "zexDriverImportExternalPointer", import_pointer);
}

absl::Status DriverFunctions::FindGraphs(ze_driver_handle_t driver) {
  RETURN_IF_ERROR(FindFunction(driver, "zeCommandListEndGraphCaptureExp", end_capture));
  RETURN_IF_ERROR(FindFunction(driver, "zeCommandListInstantiateGraphExp", instantiate));
  RETURN_IF_ERROR(FindFunction(driver, "zeCommandListAppendGraphExp", append_graph));
  RETURN_IF_ERROR(FindFunction(driver, "zeGraphDestroyExp", destroy_graph));
  RETURN_IF_ERROR(FindFunction(driver, "zeExecutableGraphDestroyExp", destroy_executable));
  return FindFunction(driver, "zeCommandListBeginGraphCaptureExp", begin_capture);
}

absl::Status DriverFunctions::FindTraces(ze_driver_handle_t driver) {
  RETURN_IF_ERROR(FindFunction(driver, "xpudCommandListCountCaptured", count_captured));
  RETURN_IF_ERROR(FindFunction(driver, "xpudDriverFlushTrace", flush_trace));
  RETURN_IF_ERROR(FindFunction(driver, "xpudDriverStopTrace", stop_trace));
  RETURN_IF_ERROR(FindFunction(driver, "xpudSetTraceTag", set_trace_tag));
  return FindFunction(driver, "xpudDriverStartTrace", start_trace);
}

}  // namespace xpud::executor
