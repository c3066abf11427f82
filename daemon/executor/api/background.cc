#include "daemon/executor/api/background.h"

#include <pthread.h>

#include <utility>

namespace xpud::executor {

Background::~Background() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void Background::Run(std::function<void()> work, std::function<void()> then) {
  if (!thread_.joinable()) thread_ = std::thread([this] { Main(); });
  MutexLock lock(mutex_);
  waiting_.push_back({std::move(work), std::move(then)});
  changed_.NotifyAll();
}

void Background::FinishDone() {
  if (!any_done_.load(std::memory_order_acquire)) return;
  std::vector<Piece> done;
  {
    MutexLock lock(mutex_);
    done.swap(done_);
    any_done_.store(false, std::memory_order_relaxed);
  }
  for (const Piece& piece : done) piece.then();
}

void Background::Main() {
  pthread_setname_np(pthread_self(), "xpud-import");
  for (;;) {
    Piece piece;
    {
      MutexLock lock(mutex_);
      while (waiting_.empty() && !ending_) changed_.Wait(mutex_);
      if (ending_) return;
      piece = std::move(waiting_.front());
      waiting_.pop_front();
    }
    piece.work();
    {
      MutexLock lock(mutex_);
      done_.push_back(std::move(piece));
      any_done_.store(true, std::memory_order_release);
    }
    wake_();
  }
}

}  // namespace xpud::executor
