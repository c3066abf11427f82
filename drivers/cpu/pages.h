// Sizes of pages, and failures of calls that make or map them.
#pragma once

#include <level_zero/ze_api.h>

#include <cerrno>
#include <cstddef>

namespace xpud::drivers::cpu {

inline constexpr size_t kPage = 4096;
inline constexpr size_t kHugePage = size_t{2} << 20;

constexpr size_t RoundUp(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

// The page size that memory of `size` has or is likely to have.
constexpr size_t PageSizeOf(size_t size) { return size >= kHugePage ? kHugePage : kPage; }

inline ze_result_t ResultOfErrno() {
  const bool memory = errno == ENOMEM || errno == ENOSPC;
  return memory ? ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

}  // namespace xpud::drivers::cpu
