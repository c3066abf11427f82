// A process of its own that runs a function of the test's, to be killed, stopped or waited for. Forked, so
// the test has no threads when it makes one. It dies with the test.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>

#include "tests/e2e/signal_process.h"

namespace xpud::isolation {

class Child {
 public:
  // `body` returns or is killed; its process then exits with 0, without running destructors.
  explicit Child(const std::function<void()>& body);
  ~Child() { Kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const { e2e::SignalProcess(pid_, signal); }
  // Waits for its end; what waitpid says.
  int Wait();
  int Kill(int signal = SIGKILL);

 private:
  pid_t pid_ = -1;
};

// In a child of a test that is root: goes on as this user.
void BecomeUser(uid_t user);

}  // namespace xpud::isolation
