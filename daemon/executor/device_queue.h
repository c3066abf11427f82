// One in-order stream of work on a device: a Level Zero immediate list. The engine thread only.
#pragma once

#include <level_zero/ze_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "daemon/executor/device.h"

namespace xpud::executor {

class DeviceQueue {
 public:
  // `in_order`: the list runs its appends one after the other; otherwise a barrier stands before each.
  DeviceQueue(Device& device, ze_command_list_handle_t list, bool in_order)
      : device_(device), list_(list), in_order_(in_order) {}
  ~DeviceQueue();
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;

  absl::Status Launch(const kernels::LaunchList& launches);
  absl::Status Copy(void* target, const void* source, uint64_t bytes);
  absl::Status Zero(void* target, uint64_t bytes);
  // Stores `value` at `word` once all that was appended before is done.
  absl::Status WriteValue(uint64_t* word, uint64_t value);
  // Waits at most `timeout_ns`; DeadlineExceeded when work remains.
  absl::Status Synchronize(uint64_t timeout_ns);
  // The device's clock, in nanoseconds, once all that was appended before is done.
  absl::Status WriteTimestamp(uint64_t* word);
  // Whether Copy is done with pageable host memory when it returns. Our drivers promise it.
  bool consumes_host_source() const { return device_.properties().vendor != "intel"; }

 private:
  absl::Status Order();  // after what was appended before

  Device& device_;
  ze_command_list_handle_t list_;
  bool in_order_;
};

}  // namespace xpud::executor
