#include "daemon/executor/api/background.h"

#include <utility>

#include "proto/base/start_thread.h"

namespace xpud::executor {

Background::Background(std::function<void()> wake, std::string thread)
    : wake_(std::move(wake)), name_(std::move(thread)) {
  (void)HasThread();
}

Background::~Background() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void Background::Run(std::function<void()> work, std::function<void()> then) {
  if (!HasThread()) return Do({std::move(work), std::move(then)});
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

bool Background::HasThread() {
  if (thread_.joinable()) return true;
  if (auto started = StartThread(name_, [this] { Main(); }); started.ok()) thread_ = *std::move(started);
  return thread_.joinable();
}

void Background::Main() {
  for (;;) {
    Piece piece;
    {
      MutexLock lock(mutex_);
      while (waiting_.empty() && !ending_) changed_.Wait(mutex_);
      if (ending_) return;
      piece = std::move(waiting_.front());
      waiting_.pop_front();
    }
    Do(std::move(piece));
  }
}

void Background::Do(Piece piece) {
  piece.work();
  {
    MutexLock lock(mutex_);
    done_.push_back(std::move(piece));
    any_done_.store(true, std::memory_order_release);
  }
  wake_();
}

}  // namespace xpud::executor
