// Converts ze_result_t to absl::Status. The only place that does.
#pragma once

#include <level_zero/ze_api.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/base/out_of_memory.h"

namespace xpud::executor {

inline absl::Status ToStatus(ze_result_t result, const char* call) {
  if (result == ZE_RESULT_SUCCESS) [[likely]]
    return absl::OkStatus();
  const std::string text = absl::StrCat(call, " failed with 0x", absl::Hex(static_cast<uint32_t>(result)));
  switch (result) {
    case ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY:
    case ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY:
      return absl::ResourceExhaustedError(absl::StrCat(kOutOfMemoryOpening, text));
    case ZE_RESULT_ERROR_DEVICE_LOST:
      return absl::UnavailableError(absl::StrCat("device lost: ", text));
    case ZE_RESULT_ERROR_UNSUPPORTED_FEATURE:
      return absl::UnimplementedError(text);
    case ZE_RESULT_ERROR_OVERLAPPING_REGIONS:  // the wanted addresses are in use
      return absl::AlreadyExistsError(text);
    case ZE_RESULT_NOT_READY:
      return absl::DeadlineExceededError(text);
    default:
      return absl::InternalError(text);
  }
}

}  // namespace xpud::executor

#define RETURN_IF_ZE_ERROR(call)                                                                          \
  do {                                                                                                    \
    if (absl::Status ze_status = ::xpud::executor::ToStatus((call), #call); !ze_status.ok()) [[unlikely]] \
      return ze_status;                                                                                   \
  } while (0)
