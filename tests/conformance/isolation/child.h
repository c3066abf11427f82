// A process that runs a function of the test, and can be killed, stopped or waited for. It is forked, so the
// test must have no threads then. It dies with the test.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>

#include "tests/e2e/signal_process.h"

namespace xpud::isolation {

class Child {
 public:
  // When `body` returns, the process exits with 0, without running destructors.
  explicit Child(const std::function<void()>& body);
  ~Child() { Kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const { e2e::SignalProcess(pid_, signal); }
  // Waits for its end. Returns waitpid's status.
  int Wait();
  int Kill(int signal = SIGKILL);

 private:
  pid_t pid_ = -1;
};

// Changes to another user. REQUIRES: a child of a test that runs as root.
void BecomeUser(uid_t user);

}  // namespace xpud::isolation
