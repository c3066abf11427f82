// Reasons for missing values, as shown in wide views.
#pragma once

#include <string>

#include "proto/control/xpud.pb.h"

namespace xpud::xpuctl {

inline constexpr char kNoSensors[] = "this device has no sensors";
inline constexpr char kNotReported[] = "this daemon does not report it";
inline constexpr char kNoKernels[] = "no kernels are compiled for this device";
inline constexpr char kNoExecutor[] = "the device has no process of its own";
inline constexpr char kBeingReplaced[] = "the executor is being replaced";
inline constexpr char kNoQuota[] = "none of its own; the lowest of the quotas that apply is in force";

// Returns "" if nothing is missing.
inline std::string WhyUnmeasured(const v1::Device& device) {
  std::string why = device.has_kernels_compiled() ? "" : kNoKernels;
  for (const v1::Unmeasured& unmeasured : device.unmeasured()) {
    if (!why.empty()) why += "; ";
    why += unmeasured.field() + ": " + unmeasured.why();
  }
  if (device.has_executor_pid() && device.has_executors_replaced()) return why;
  if (!why.empty()) why += "; ";
  return why + (device.has_executors_replaced() ? kBeingReplaced : kNoExecutor);
}

}  // namespace xpud::xpuctl
