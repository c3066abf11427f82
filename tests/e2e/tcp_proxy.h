// A network that can be cut: forwards TCP connections on loopback to an address. Ends when destroyed.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <string>
#include <thread>

#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"

namespace xpud::e2e {

class TcpProxy {
 public:
  // `target`: 127.0.0.1:PORT.
  explicit TcpProxy(const std::string& target);
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  const std::string& address() const { return address_; }
  // Ends all connections, as by a reset.
  void Cut();
  // While it is down, new connections are ended at once.
  void SetDown(bool down) { down_.store(down); }
  uint64_t forwarded_bytes() const { return forwarded_.load(); }

 private:
  struct Pair {
    UniqueFd client, target;
    std::thread there, back;
  };
  void Accept();
  void Forward(int from, int to);

  const uint16_t target_port_;
  UniqueFd listener_;
  std::string address_;
  std::atomic<bool> down_{false}, stops_{false};
  std::atomic<uint64_t> forwarded_{0};
  Mutex mutex_;
  std::list<Pair> pairs_ ABSL_GUARDED_BY(mutex_);
  std::thread acceptor_;
};

}  // namespace xpud::e2e
