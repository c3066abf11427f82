// kill(2) for tests.
#pragma once

#include <signal.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace xpud::e2e {

// Sends `signal` to process `pid`. Aborts unless pid > 1: kill(-1) would end every process of the machine,
// including the test's runner, and most interfaces return -1 for "no such process".
inline void SignalProcess(int64_t pid, int signal) {
  if (pid <= 1) {
    std::fprintf(stderr, "no process to send signal %d to: pid %lld\n", signal, static_cast<long long>(pid));
    std::abort();
  }
  kill(static_cast<pid_t>(pid), signal);
}

}  // namespace xpud::e2e
