// A session whose client may send anything: raw commands on device 0, and raw messages on its socket.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "proto/transport/host_memory.h"
#include "proto/transport/requests.h"
#include "proto/transport/shm_client.h"
#include "proto/wire/encode.h"

namespace xpud::e2e {

template <typename Command>
wire::CommandHeader HeaderOf(wire::CommandKind kind, uint32_t queue = 0) {
  return wire::Header(kind, queue, sizeof(Command));
}

class RawSession {
 public:
  // Aborts the test program if the daemon refuses the session.
  explicit RawSession(const std::string& address);

  template <typename Command>
  void Send(const Command& command) {
    std::byte* space = transport_->Reserve(sizeof(command));
    std::memcpy(space, &command, sizeof(command));
    transport_->Commit(sizeof(command));
    transport_->Publish();
    ++sequence_;
  }
  // Waits for all commands sent, on queue 0.
  absl::Status Synchronize();

  int socket() const { return socket_.get(); }
  // Sends a message. Returns false if the daemon has hung up.
  bool SendMessage(std::span<const std::byte> message, std::span<const int> fds) const;
  bool Share(const transport::Request& message, int fd) const {
    return SendMessage(std::as_bytes(std::span(&message, 1)), {&fd, 1});
  }
  transport::Answer Answer() const;  // waits for the answer

  transport::ShmClient& transport() { return *transport_; }
  // Returns how the daemon ended the session; waits up to a second.
  std::string Fate() const;

 private:
  UniqueFd socket_;
  std::unique_ptr<transport::ShmClient> transport_;
  uint64_t sequence_ = 0;
};

}  // namespace xpud::e2e
