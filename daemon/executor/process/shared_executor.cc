#include "daemon/executor/process/shared_executor.h"

#include <chrono>

namespace xpud::executor::process {
namespace {

constexpr auto kWaitForExecutor = std::chrono::seconds(30);

}  // namespace

void SharedExecutor::Publish(Process process) {
  MutexLock lock(mutex_);
  process_ = std::move(process);
  changed_.NotifyAll();
}

Process SharedExecutor::Get() {
  MutexLock lock(mutex_);
  return process_;
}

void SharedExecutor::Interrupt() {
  MutexLock lock(mutex_);
  changed_.NotifyAll();
}

Process SharedExecutor::OtherThan(const Process& used, absl::FunctionRef<bool()> go_on) {
  const auto until = std::chrono::steady_clock::now() + kWaitForExecutor;
  MutexLock lock(mutex_);
  while (process_ != nullptr && process_ == used) {
    if (!go_on()) return nullptr;
    const bool changed = changed_.WaitFor(mutex_, kWaitForExecutor);
    if (!changed || std::chrono::steady_clock::now() > until) return nullptr;
  }
  return process_;
}

}  // namespace xpud::executor::process
