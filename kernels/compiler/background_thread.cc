#include "kernels/compiler/background_thread.h"

#include <utility>

#include "proto/base/check.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

BackgroundThread::~BackgroundThread() {
  std::thread thread;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
    thread.swap(thread_);
  }
  if (thread.joinable()) thread.join();
}

absl::Status BackgroundThread::Start() {
  MutexLock lock(mutex_);
  if (thread_.joinable()) return absl::OkStatus();
  ASSIGN_OR_RETURN(thread_, StartThread(name_, [this] { Serve(); }));
  return absl::OkStatus();
}

void BackgroundThread::Run(std::function<void()> work) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  XPUD_CHECK(thread_.joinable());
  queue_.push_back(std::move(work));
  ++unfinished_;
  changed_.NotifyAll();
}

void BackgroundThread::Wait() {
  MutexLock lock(mutex_);
  while (unfinished_ != 0) changed_.Wait(mutex_);
}

void BackgroundThread::Serve() {
  for (;;) {
    std::function<void()> work;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) changed_.Wait(mutex_);
      if (stopping_) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
    work = nullptr;
    MutexLock lock(mutex_);
    --unfinished_;
    changed_.NotifyAll();
  }
}

}  // namespace xpud::kernels
