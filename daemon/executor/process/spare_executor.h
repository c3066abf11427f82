// The executor that takes the device when the present one is lost. It has loaded the drivers; a standby has
// also opened the device, which takes device memory, and runs the same requests as the present executor, so
// that it has loaded the libraries' code. Owned by ProcessDevice. Thread-safe, except for Start.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>

#include "absl/status/statusor.h"
#include "daemon/executor/process/shared_executor.h"
#include "kernels/api/launch.h"
#include "proto/base/mutex.h"

namespace xpud::executor::process {

class SpareExecutor {
 public:
  // `device`: the daemon's number for it. `spawner` outlives this. `standby`: see above.
  SpareExecutor(uint32_t device, Spawner& spawner, const ExecutorCommand& command, bool standby)
      : device_(device), spawner_(spawner), command_(command), standby_(standby) {}
  ~SpareExecutor();  // REQUIRES: the spawner is closed
  SpareExecutor(const SpareExecutor&) = delete;
  SpareExecutor& operator=(const SpareExecutor&) = delete;

  // Starts a spare, unless there is one or it is being started. Does not wait. REQUIRES: the lane's thread.
  void Start();
  // Returns an executor that has the device: the spare, or a new one. There is no spare then.
  absl::StatusOr<Process> Take();
  // Has a standby run the request, too. The caller joins the thread; `launch` lives until then.
  std::thread RunHostKernel(const kernels::Launch& launch);

 private:
  absl::Status Keep();

  const uint32_t device_;
  Spawner& spawner_;
  const ExecutorCommand command_;
  const bool standby_;
  std::thread starter_;
  std::atomic<bool> starting_{false};
  Mutex mutex_;
  Process spare_ ABSL_GUARDED_BY(mutex_);
  std::optional<kernels::Launch> last_host_kernel_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::executor::process
