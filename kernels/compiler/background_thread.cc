#include "kernels/compiler/background_thread.h"

#include <pthread.h>

#include <utility>

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

void BackgroundThread::Run(std::function<void()> work) {
  MutexLock lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { Serve(); });
  queue_.push_back(std::move(work));
  ++unfinished_;
  changed_.NotifyAll();
}

void BackgroundThread::Wait() {
  MutexLock lock(mutex_);
  while (unfinished_ != 0) changed_.Wait(mutex_);
}

void BackgroundThread::Serve() {
  pthread_setname_np(pthread_self(), name_);
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
