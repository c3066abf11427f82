// The driver's own handles, which functions that were found by name take. Thread-safe.
#pragma once

#include <dlfcn.h>
#include <level_zero/loader/ze_loader.h>

#include "absl/status/statusor.h"
#include "daemon/executor/level_zero/ze_status.h"
#include "proto/base/status_macros.h"

namespace xpud::executor {

// Returns the driver's own handle for one of the loader's: what a function that was found by name takes. They
// differ if the loader has several libraries, or ZE_ENABLE_LOADER_INTERCEPT is set.
template <typename Handle>
absl::StatusOr<Handle> Raw(zel_handle_type_t type, Handle handle) {
  // Found by name, because older loaders lack it.
  using Translate = decltype(&zelLoaderTranslateHandle);
  static const auto translate = reinterpret_cast<Translate>(dlsym(RTLD_DEFAULT, "zelLoaderTranslateHandle"));
  if (translate == nullptr) return handle;
  void* raw = nullptr;
  RETURN_IF_ERROR(ToStatus(translate(type, handle, &raw), "zelLoaderTranslateHandle"));
  return static_cast<Handle>(raw);
}

}  // namespace xpud::executor
