#include "deploy/agent/kubernetes/container_watch.h"

#include <algorithm>
#include <utility>

#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::agent::kubernetes {

absl::StatusOr<std::unique_ptr<ContainerWatch>> ContainerWatch::Start(std::function<bool()> look) {
  std::unique_ptr<ContainerWatch> watch(new ContainerWatch(std::move(look)));
  ASSIGN_OR_RETURN(watch->thread_, StartThread("xpud-containers", [raw = watch.get()] { raw->Run(); }));
  return watch;
}

ContainerWatch::~ContainerWatch() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void ContainerWatch::Ask() {
  const MutexLock lock(mutex_);
  looks_ = 0;
  due_ = std::min(due_, Clock::now() + kPauses[0]);  // many prepares do not put it off
  changed_.NotifyAll();
}

bool ContainerWatch::WaitForTurn() {
  const MutexLock lock(mutex_);
  while (!ends_ && Clock::now() < due_) {
    if (due_ == Clock::time_point::max())
      changed_.Wait(mutex_);
    else
      changed_.WaitFor(mutex_, due_ - Clock::now());
  }
  due_ = Clock::time_point::max();
  return !ends_;
}

void ContainerWatch::HasLooked(bool nothing_is_missing) {
  const MutexLock lock(mutex_);
  if (nothing_is_missing || due_ != Clock::time_point::max()) return;  // done, or asked again meanwhile
  if (++looks_ < kPauses.size()) due_ = Clock::now() + kPauses[looks_];
}

void ContainerWatch::Run() {
  while (WaitForTurn()) HasLooked(look_());
}

}  // namespace xpud::agent::kubernetes
