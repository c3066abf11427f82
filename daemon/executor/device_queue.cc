#include "daemon/executor/device_queue.h"

#include "daemon/executor/ze_status.h"
#include "proto/base/status_macros.h"

namespace xpud::executor {

DeviceQueue::~DeviceQueue() { zeCommandListDestroy(list_); }

absl::Status DeviceQueue::Order() {
  if (!in_order_) RETURN_IF_ZE_ERROR(zeCommandListAppendBarrier(list_, nullptr, 0, nullptr));
  return absl::OkStatus();
}

absl::Status DeviceQueue::Launch(const kernels::LaunchList& launches) {
  for (size_t i = 0; i < launches.size(); ++i) {
    const kernels::Launch& launch = launches[i];
    ASSIGN_OR_RETURN(ze_kernel_handle_t kernel, device_.Load(launch.kernel()));
    const auto& [x, y, z] = launch.groups();
    const auto& [size_x, size_y, size_z] = launch.group_size;
    RETURN_IF_ERROR(Order());
    RETURN_IF_ZE_ERROR(device_.functions_.launch(list_, kernel, ze_group_count_t{x, y, z},
                                                 xpud_group_size_t{size_x, size_y, size_z},
                                                 launch.arguments(), nullptr, nullptr, 0, nullptr));
  }
  return absl::OkStatus();
}

absl::Status DeviceQueue::Copy(void* target, const void* source, uint64_t bytes) {
  RETURN_IF_ERROR(Order());
  RETURN_IF_ZE_ERROR(zeCommandListAppendMemoryCopy(list_, target, source, bytes, nullptr, 0, nullptr));
  return absl::OkStatus();
}

absl::Status DeviceQueue::Zero(void* target, uint64_t bytes) {
  const uint8_t zero = 0;
  RETURN_IF_ERROR(Order());
  RETURN_IF_ZE_ERROR(
      zeCommandListAppendMemoryFill(list_, target, &zero, sizeof(zero), bytes, nullptr, 0, nullptr));
  return absl::OkStatus();
}

absl::Status DeviceQueue::WriteValue(uint64_t* word, uint64_t value) {
  RETURN_IF_ERROR(Order());
  RETURN_IF_ZE_ERROR(device_.functions_.write_value(list_, word, value));
  return absl::OkStatus();
}

absl::Status DeviceQueue::WriteTimestamp(uint64_t* word) {
  RETURN_IF_ERROR(Order());
  RETURN_IF_ZE_ERROR(zeCommandListAppendWriteGlobalTimestamp(list_, word, nullptr, 0, nullptr));
  return absl::OkStatus();
}

absl::Status DeviceQueue::Synchronize(uint64_t timeout_ns) {
  RETURN_IF_ZE_ERROR(device_.functions_.synchronize(list_, timeout_ns));
  return absl::OkStatus();
}

}  // namespace xpud::executor
