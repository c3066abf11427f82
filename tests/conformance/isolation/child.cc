#include "tests/conformance/isolation/child.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/check.h"

namespace xpud::isolation {

Child::Child(const std::function<void()>& body) {
  pid_ = fork();
  XPUD_CHECK(pid_ >= 0);
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  body();
  _exit(0);
}

void BecomeUser(uid_t user) {
  if (setgid(user) != 0 || setuid(user) != 0) _exit(100);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a change of the user forgets it
}

int Child::Wait() {
  int status = 0;
  if (pid_ > 0) waitpid(pid_, &status, 0);
  pid_ = -1;
  return status;
}

int Child::Kill(int signal) {
  if (pid_ > 0) e2e::SignalProcess(pid_, signal);
  return Wait();
}

}  // namespace xpud::isolation
