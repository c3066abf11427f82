// A session whose client may send anything: raw commands on device 0 and those that it opens, and raw
// messages on its socket.
#pragma once

#include <array>
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

  void Open(uint32_t device);
  template <typename Command>
  void Send(const Command& command, uint32_t device = 0) {
    OnDevice& on = devices_[device];
    std::byte* space = on.transport->Reserve(sizeof(command));
    std::memcpy(space, &command, sizeof(command));
    on.transport->Commit(sizeof(command));
    on.transport->Publish();
    ++on.sequence;
  }
  // Waits for all commands sent to a device, on queue 0.
  absl::Status Synchronize(uint32_t device = 0);
  // Whether they have ended.
  bool IsDone(uint32_t device = 0) const {
    return devices_[device].transport->Completed(0) >= devices_[device].sequence;
  }

  int socket() const { return socket_.get(); }
  // Sends a message. Returns false if the daemon has hung up.
  bool SendMessage(std::span<const std::byte> message, std::span<const int> fds) const;
  bool Share(const transport::Request& message, int fd) const {
    return SendMessage(std::as_bytes(std::span(&message, 1)), {&fd, 1});
  }
  transport::Answer Answer() const;  // waits for the answer

  transport::ShmClient& transport() { return *devices_[0].transport; }
  // Returns how the daemon ended the session; waits up to a second.
  std::string Fate() const;

 private:
  struct OnDevice {
    std::unique_ptr<transport::ShmClient> transport;
    uint64_t sequence = 0;
  };
  UniqueFd socket_;
  std::shared_ptr<transport::SessionSocket> requests_;
  uint64_t staging_bytes_ = 0;
  std::array<OnDevice, transport::kMaxDevices> devices_;
};

}  // namespace xpud::e2e
