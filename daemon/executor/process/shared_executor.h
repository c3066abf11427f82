// A device's present executor, for threads other than the lane's: they share ownership of the executor while
// they use it, and go on with the next one if it is lost. Owned by ProcessDevice. Thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "daemon/executor/process/executor_process.h"
#include "proto/base/mutex.h"

namespace xpud::executor::process {

using Process = std::shared_ptr<ExecutorProcess>;

class SharedExecutor {
 public:
  // null: there is none, and will be none.
  void Publish(Process process);
  Process Get();
  // Waits until there is an executor other than `used`. Returns null if there will be none, or after 30 s, or
  // when `go_on` is false: asked again after Interrupt.
  Process OtherThan(const Process& used, absl::FunctionRef<bool()> go_on = [] { return true; });
  void Interrupt();
  // Returns use(executor), of the next executor if that is Unavailable.
  template <typename Use>
  auto With(Use use) -> decltype(use(std::declval<ExecutorProcess&>())) {
    Process used;
    for (;;) {
      used = OtherThan(used);
      if (used == nullptr) return absl::UnavailableError("the device's executor is lost");
      auto result = use(*used);
      if (!absl::IsUnavailable(result.status())) return result;
    }
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  Process process_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::executor::process
