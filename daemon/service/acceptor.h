// Accepts connections on a listening socket that another process created, on a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace xpud::service {

class Acceptor {
 public:
  // Calls `take` on the acceptor's thread with each connection, which is non-blocking. Returns
  // ResourceExhausted if the thread cannot be started.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Start(UniqueFd socket, std::function<void(UniqueFd)> take);
  ~Acceptor();  // stops accepting; the socket's file stays
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

 private:
  Acceptor(UniqueFd socket, UniqueFd end, std::function<void(UniqueFd)> take);
  void Run();

  const UniqueFd socket_, end_;
  const std::function<void(UniqueFd)> take_;
  std::thread thread_;
};

}  // namespace xpud::service
