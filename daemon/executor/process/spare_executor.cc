#include "daemon/executor/process/spare_executor.h"

#include <spdlog/spdlog.h>

#include <string>
#include <utility>

#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::executor::process {

SpareExecutor::~SpareExecutor() {
  if (starter_.joinable()) starter_.join();
}

void SpareExecutor::Start() {
  if (starting_.exchange(true)) return;
  if (starter_.joinable()) starter_.join();  // the thread has finished
  const auto end = [this](const absl::Status& status) {
    if (!status.ok())
      spdlog::warn("spare_not_started device={} error=\"{}\"", device_, std::string(status.message()));
    starting_.store(false);
  };
  auto started = StartThread("xpud-spare", [this, end] { end(Keep()); });
  if (started.ok())
    starter_ = *std::move(started);
  else
    end(started.status());
}

absl::Status SpareExecutor::Keep() {
  {
    MutexLock lock(mutex_);
    if (spare_ != nullptr) return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Process spare, ExecutorProcess::Start(spawner_, command_));
  if (standby_) RETURN_IF_ERROR(spare->TakeDevice());
  std::optional<kernels::Launch> question;
  {
    MutexLock lock(mutex_);
    spare_ = spare;  // from now on a standby gets the same requests
    question = last_host_kernel_;
  }
  if (standby_ && question.has_value()) (void)spare->RunHostKernel(*question);
  return absl::OkStatus();
}

absl::StatusOr<Process> SpareExecutor::Take() {
  Process taken;
  {
    MutexLock lock(mutex_);
    taken = std::exchange(spare_, nullptr);
  }
  if (taken == nullptr || taken->Ended()) {
    ASSIGN_OR_RETURN(taken, ExecutorProcess::Start(spawner_, command_));
  }
  if (!taken->has_device()) RETURN_IF_ERROR(taken->TakeDevice());
  return taken;
}

std::thread SpareExecutor::RunHostKernel(const kernels::Launch& launch) {
  Process spare;
  {
    MutexLock lock(mutex_);
    last_host_kernel_ = launch;
    spare = spare_;
  }
  if (!standby_ || spare == nullptr) return {};
  auto started = StartThread("xpud-ask", [spare, &launch] { (void)spare->RunHostKernel(launch); });
  return started.ok() ? *std::move(started) : std::thread();  // the spare loads the code when it takes over
}

}  // namespace xpud::executor::process
