// A thread that does work in order. Thread-safe; the thread itself may call Run, and must not call Wait.
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "proto/base/mutex.h"

namespace xpud::kernels {

class BackgroundThread {
 public:
  // `name`: for debuggers, at most 15 characters.
  explicit BackgroundThread(const char* name) : name_(name) {}
  // Waits for the work that has begun, and drops the rest, with what that work gives to Run meanwhile.
  ~BackgroundThread() ABSL_LOCKS_EXCLUDED(mutex_);
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

  // Starts the thread; does nothing if it runs. Returns ResourceExhausted if the system has no thread left.
  absl::Status Start() ABSL_LOCKS_EXCLUDED(mutex_);
  // REQUIRES: Start succeeded.
  void Run(std::function<void()> work) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns when nothing waits or is being done.
  void Wait() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Serve() ABSL_LOCKS_EXCLUDED(mutex_);

  const char* const name_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  size_t unfinished_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::kernels
