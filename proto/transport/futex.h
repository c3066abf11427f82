// The two futex calls that the transport uses, on words shared between processes.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

namespace xpud::transport {

// Sleeps while `word` holds `expected`, at most `timeout`. Works on read-only mappings.
inline void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected,
                      std::chrono::nanoseconds timeout) {
  timespec limit = {static_cast<time_t>(timeout.count() / 1'000'000'000),
                    static_cast<long>(timeout.count() % 1'000'000'000)};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &limit, nullptr, 0);
}

// Wakes all threads, of any process, that sleep on `word`.
inline void FutexWakeAll(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

inline void CpuRelax() { __builtin_ia32_pause(); }

}  // namespace xpud::transport
