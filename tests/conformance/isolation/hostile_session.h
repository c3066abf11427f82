// A session whose client writes to the shared pages what it likes, when it likes. One thread, but for the
// pages, which any thread may write as another process of the client's could.
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

namespace xpud::isolation {

// To a daemon's socket, or to the xpud-connect that stands for a daemon on another machine.
UniqueFd ConnectTo(const std::string& address);

class HostileSession {
 public:
  // Aborts the test where the daemon does not take it.
  explicit HostileSession(const std::string& address, const char* name = "hostile");

  // Adds a command; waits for room, and not for ever.
  void Put(std::span<const std::byte> command);
  template <typename Command>
    requires std::is_trivially_copyable_v<Command>
  void Put(const Command& command) {
    Put(std::as_bytes(std::span(&command, 1)));
  }
  // Shows the daemon what was put.
  void Publish() { PublishUpTo(tail_); }
  void PublishUpTo(uint64_t tail);

  // Publishes and waits until all that was put is done on queue 0. Queue 0's error, if there is one, which is
  // then cleared; Unavailable, with the reason, when the daemon closed the session.
  absl::Status Settle(std::chrono::milliseconds limit = std::chrono::seconds(20));
  // As Settle, for a client that expects to be thrown out: the reason.
  std::string Fate();
  bool closed() const { return completion().closed.load(std::memory_order_acquire) != 0; }

  // What is put next goes there: the caller has published what is before.
  void SkipTo(uint64_t tail) { tail_ = tail; }

  bool gone() const;  // closed, or the daemon has died

  uint64_t sequence() const { return sequence_; }  // of the last command that was put
  uint64_t tail() const { return tail_; }
  transport::ControlPage& control() const {
    return *reinterpret_cast<transport::ControlPage*>(control_.data());
  }
  const transport::CompletionPage& completion() const {
    return *reinterpret_cast<const transport::CompletionPage*>(completion_.data());
  }
  std::span<std::byte> ring() const { return {ring_.data(), ring_.size()}; }
  std::span<std::byte> staging() const { return {staging_.data(), staging_.size()}; }
  const transport::SessionFds& fds() const { return fds_; }
  const transport::Welcome& welcome() const { return welcome_; }
  int socket() const { return socket_.get(); }
  void Unmap();  // the ring and staging, as a client might at any time

 private:
  UniqueFd socket_;
  transport::Welcome welcome_;
  transport::SessionFds fds_;
  Mapping control_, ring_, completion_, staging_;
  uint64_t tail_ = 0, sequence_ = 0;
  uint32_t errors_seen_ = 0;
};

}  // namespace xpud::isolation
