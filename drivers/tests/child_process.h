// For tests: this program, started again by exec so that it inherits nothing of CUDA. A socket carries
// requests and replies, each with at most one fd. Not thread-safe.
#pragma once

#include <level_zero/ze_api.h>
#include <sys/types.h>

#include <cstdint>

#include "proto/base/unique_fd.h"

namespace xpud::drivers {

enum class Order : uint32_t {
  kStart,     // `text` names the back end
  kAllocate,  // placed exportable memory; the reply has its fd
  kImport,    // maps the request's fd at `address`
  kFree,      // frees the memory at `address`
  kWrite,     // writes words that depend on `seed`, by copies and by a kernel
  kCheck,     // the reply's `value`: how many words differ
  kShare,  // maps the fd at `address` for host and device; adds `seed` by a kernel, writes it by the stream
  kFault,  // a kernel stores to an unmapped address
  kSpin,   // an endless kernel that fills the device
};

struct Message {
  Order order;
  ze_result_t result;
  uint64_t address;
  uint64_t size;
  uint64_t seed;
  uint64_t value;
  double ms[3];  // times of the request's steps
  char text[160];
};

// Returns false if the peer is gone.
bool Send(int socket, const Message& message, int fd = -1);
bool Receive(int socket, Message& message, UniqueFd& fd);

class ChildProcess {
 public:
  // main() of the child gets kChildFlag and the socket's number.
  static constexpr char kChildFlag[] = "--child";
  ChildProcess();
  // Kills and reaps the process if it is still there.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Returns the reply to a request. A child that died, or takes more than 30 s, counts as DEVICE_LOST.
  Message Do(Message order, int fd = -1);
  // The fd of the last reply.
  UniqueFd TakeFd() { return std::move(fd_); }
  void Kill();
  // Returns its exit status, and the time that reaping took.
  int Reap(double& ms);

 private:
  pid_t pid_ = -1;
  UniqueFd socket_;
  UniqueFd fd_;
};

}  // namespace xpud::drivers
