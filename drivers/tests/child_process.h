// Tests only: this program started anew (by exec, so that nothing of CUDA is inherited), with a socket to it
// on which orders and answers go, each with at most one fd. One thread.
#pragma once

#include <level_zero/ze_api.h>
#include <sys/types.h>

#include <cstdint>

#include "proto/base/unique_fd.h"

namespace xpud::drivers {

enum class Order : uint32_t {
  kStart,     // `text` names the back end
  kAllocate,  // placed exportable memory; its fd comes with the answer
  kImport,    // the fd that comes with the order, placed
  kFree,      // what lies at `address`
  kWrite,     // words that depend on `seed`, by copies and by a kernel
  kCheck,     // `value` of the answer: how many of them differ
  kShare,  // maps the fd at `address` for host and device; adds `seed` by a kernel, writes it by the stream
  kFault,  // a kernel stores to an address that nobody has
  kSpin,   // a kernel that does not end, on all that the device has
};

struct Message {
  Order order;
  ze_result_t result;
  uint64_t address;
  uint64_t size;
  uint64_t seed;
  uint64_t value;
  double ms[3];  // what the steps of the order took
  char text[160];
};

// False when the peer is gone.
bool Send(int socket, const Message& message, int fd = -1);
bool Receive(int socket, Message& message, UniqueFd& fd);

class ChildProcess {
 public:
  // main() of the child gets kChildFlag and the socket's number.
  static constexpr char kChildFlag[] = "--child";
  ChildProcess();
  // Kills and reaps it if that has not happened.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // The answer to an order. A child that died, or needs more than 30 s, answers DEVICE_LOST.
  Message Do(Message order, int fd = -1);
  // What came with the last answer.
  UniqueFd TakeFd() { return std::move(fd_); }
  void Kill();
  // Its status, and how long that took.
  int Reap(double& ms);

 private:
  pid_t pid_ = -1;
  UniqueFd socket_;
  UniqueFd fd_;
};

}  // namespace xpud::drivers
