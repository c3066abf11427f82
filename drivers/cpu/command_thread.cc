#include "drivers/cpu/command_thread.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>

namespace xpud::drivers::cpu {
namespace {

// How long a command out of order waits for others that overtake it.
constexpr std::chrono::microseconds kOvertakingTime(20);

}  // namespace

CommandThread::~CommandThread() {
  std::thread thread;
  {
    MutexLock lock(mutex_);
    stopping_.store(true);
    work_.NotifyAll();
    thread.swap(thread_);
  }
  if (thread.joinable()) thread.join();
}

void CommandThread::Enqueue(std::unique_ptr<Command> command) {
  MutexLock lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread(&CommandThread::Serve, this);
  queue_.push_back(std::move(command));
  pending_.fetch_add(1, std::memory_order_relaxed);
  work_.NotifyOne();
}

ze_result_t CommandThread::Wait(uint64_t timeout_ns) const {
  if (idle()) return ZE_RESULT_SUCCESS;
  if (timeout_ns == 0) return ZE_RESULT_NOT_READY;
  const uint64_t deadline = DeadlineAfter(timeout_ns);
  MutexLock lock(mutex_);
  while (!idle()) {
    const uint64_t now = NowNs();
    if (now >= deadline) return ZE_RESULT_NOT_READY;
    done_.WaitFor(mutex_, std::chrono::nanoseconds(std::min<uint64_t>(deadline - now, 3'600'000'000'000)));
  }
  return ZE_RESULT_SUCCESS;
}

void CommandThread::Serve() {
  pthread_setname_np(pthread_self(), "xpud-cpu-queue");
  while (const std::unique_ptr<Command> command = Next()) {
    if (!command->Run(device_.pool(), stopping_)) return;
    Finish();
  }
}

std::unique_ptr<Command> CommandThread::Next() {
  MutexLock lock(mutex_);
  while (queue_.empty() && !stopping_.load()) work_.Wait(mutex_);
  if (stopping_.load()) return nullptr;
  size_t next = 0;
  if (!in_order_) {
    if (queue_.size() == 1 && !queue_.front()->is_barrier()) work_.WaitFor(mutex_, kOvertakingTime);
    next = NextOutOfOrder();
  }
  std::unique_ptr<Command> command = std::move(queue_[next]);
  queue_.erase(queue_.begin() + static_cast<ptrdiff_t>(next));
  return command;
}

// The last command before the next barrier that waits for no event.
size_t CommandThread::NextOutOfOrder() const {
  size_t next = 0;
  for (size_t i = 0; i < queue_.size() && !queue_[i]->is_barrier(); ++i)
    if (!queue_[i]->waits()) next = i;
  return next;
}

void CommandThread::Finish() {
  MutexLock lock(mutex_);
  pending_.fetch_sub(1, std::memory_order_release);
  done_.NotifyAll();
}

}  // namespace xpud::drivers::cpu
