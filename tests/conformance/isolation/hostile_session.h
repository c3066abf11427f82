// A session on device 0 whose client writes anything to the shared pages at any time. Not thread-safe, except
// for the pages, which any thread may write, like another process of the client.
#pragma once

#include <atomic>
#include <chrono>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/mapping.h"
#include "proto/transport/handshake.h"
#include "proto/transport/layout.h"
#include "proto/transport/requests.h"

namespace xpud::isolation {

// Connects to a daemon's socket, or to an xpud-connect for a remote daemon.
UniqueFd ConnectTo(const std::string& address);

class HostileSession {
 public:
  // Aborts the test if the daemon refuses the session.
  explicit HostileSession(const std::string& address, const char* name = "hostile");

  // Adds a command; waits for space for a limited time.
  void Put(std::span<const std::byte> command);
  template <typename Command>
    requires std::is_trivially_copyable_v<Command>
  void Put(const Command& command) {
    Put(std::as_bytes(std::span(&command, 1)));
  }
  // Makes added commands visible to the daemon.
  void Publish() { PublishUpTo(tail_); }
  void PublishUpTo(uint64_t tail);

  // Publishes, and waits until all commands are done on queue 0. Returns queue 0's error, which is then
  // cleared, or Unavailable, with the reason, if the daemon closed the session.
  absl::Status Settle(std::chrono::milliseconds limit = std::chrono::seconds(20));
  // Like Settle, for a client that expects to be disconnected. Returns the reason.
  std::string Fate();
  bool closed() const { return completion().closed.load(std::memory_order_acquire) != 0; }

  // Continues at another position. REQUIRES: earlier commands are published.
  void SkipTo(uint64_t tail) { tail_ = tail; }

  bool gone() const;  // closed, or the daemon has died

  uint64_t sequence() const { return sequence_; }  // of the last added command
  uint64_t tail() const { return tail_; }
  transport::ControlPage& control() const {
    return *reinterpret_cast<transport::ControlPage*>(control_.data());
  }
  const transport::CompletionPage& completion() const {
    return *reinterpret_cast<const transport::CompletionPage*>(completion_.data());
  }
  std::span<std::byte> ring() const { return {ring_.data(), ring_.size()}; }
  std::span<std::byte> staging() const { return {staging_.data(), staging_.size()}; }
  const transport::DeviceFds& fds() const { return fds_; }
  const transport::Welcome& welcome() const { return welcome_; }
  int socket() const { return socket_.get(); }
  void Unmap();  // unmaps the ring and staging, as a client may at any time

 private:
  UniqueFd socket_;
  transport::Welcome welcome_;
  transport::DeviceFds fds_;
  Mapping control_, ring_, completion_, staging_;
  uint64_t tail_ = 0, sequence_ = 0;
  uint32_t errors_seen_ = 0;
};

}  // namespace xpud::isolation
