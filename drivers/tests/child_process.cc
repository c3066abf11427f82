#include "drivers/tests/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "drivers/tests/stopwatch.h"
#include "proto/base/check.h"

namespace xpud::drivers {

bool Send(int socket, const Message& message, int fd) {
  iovec io = {const_cast<Message*>(&message), sizeof(message)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &io;
  header.msg_iovlen = 1;
  if (fd >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(int));
  }
  return sendmsg(socket, &header, MSG_NOSIGNAL) == sizeof(message);
}

bool Receive(int socket, Message& message, UniqueFd& fd) {
  iovec io = {&message, sizeof(message)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &io;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  if (recvmsg(socket, &header, MSG_CMSG_CLOEXEC) != sizeof(message)) return false;
  int received = -1;
  const cmsghdr* const rights = CMSG_FIRSTHDR(&header);
  if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS)
    std::memcpy(&received, CMSG_DATA(rights), sizeof(int));
  fd.Reset(received);
  return true;
}

ChildProcess::ChildProcess() {
  int ends[2];
  XPUD_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  socket_.Reset(ends[0]);
  UniqueFd theirs(ends[1]);
  const timeval patience{30, 0};
  XPUD_CHECK(setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0);
  const std::string number = std::to_string(theirs.get());
  pid_ = fork();
  XPUD_CHECK(pid_ >= 0);
  if (pid_ != 0) return;
  fcntl(theirs.get(), F_SETFD, 0);
  execl("/proc/self/exe", "child", kChildFlag, number.c_str(), nullptr);
  _exit(127);
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0) return;
  Kill();
  double ms = 0;
  static_cast<void>(Reap(ms));
}

Message ChildProcess::Do(Message order, int fd) {
  Message answer = {};
  if (Send(socket_.get(), order, fd) && Receive(socket_.get(), answer, fd_)) return answer;
  order.result = ZE_RESULT_ERROR_DEVICE_LOST;
  return order;
}

void ChildProcess::Kill() { kill(pid_, SIGKILL); }

int ChildProcess::Reap(double& ms) {
  const Stopwatch watch;
  int status = 0;
  XPUD_CHECK(waitpid(pid_, &status, 0) == pid_);
  pid_ = -1;
  ms = watch.Ms();
  return status;
}

}  // namespace xpud::drivers
