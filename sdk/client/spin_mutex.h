// A lock for critical sections of some tens of nanoseconds that are almost never contended. Releasing it is a
// plain store: a std::mutex releases with an atomic read-modify-write, which waits for every earlier store,
// and on the way of a command those are stores to cache lines that another process has just read. Who finds
// it taken spins, then lets others run.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "absl/base/thread_annotations.h"

namespace xpud {

class ABSL_LOCKABLE SpinMutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    if (taken_.exchange(true, std::memory_order_acquire)) [[unlikely]]
      LockSlowly();
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() { taken_.store(false, std::memory_order_release); }

 private:
  void LockSlowly() {
    for (int tries = 0;; ++tries) {
      if (!taken_.load(std::memory_order_relaxed) && !taken_.exchange(true, std::memory_order_acquire))
        return;
      if (tries < 100) {
        __builtin_ia32_pause();
      } else if (tries < 120) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(20));  // its holder is not running
      }
    }
  }
  std::atomic<bool> taken_{false};
};

class ABSL_SCOPED_LOCKABLE SpinLock {
 public:
  explicit SpinLock(SpinMutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~SpinLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;

 private:
  SpinMutex& mutex_;
};

}  // namespace xpud
