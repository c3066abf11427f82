// Takes the connections that come to a socket which somebody else has made, on a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace xpud::service {

class Acceptor {
 public:
  // `take` gets each connection, which does not block, on the acceptor's thread.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Start(UniqueFd socket, std::function<void(UniqueFd)> take);
  ~Acceptor();  // takes no more; the socket stays where it is
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
