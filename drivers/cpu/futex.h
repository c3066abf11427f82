// Sleeping on a 32-bit word of this process. Thread-safe.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>

namespace xpud::drivers::cpu {

// Sleeps while `word` holds `expected`, at most `timeout`; may wake early.
inline void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected,
                      std::chrono::nanoseconds timeout) {
  const timespec limit{static_cast<time_t>(timeout.count() / 1000000000),
                       static_cast<long>(timeout.count() % 1000000000)};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, &limit, nullptr, 0);
}

inline void FutexWake(const std::atomic<uint32_t>& word, int count) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

inline void CpuRelax() { __builtin_ia32_pause(); }

}  // namespace xpud::drivers::cpu
