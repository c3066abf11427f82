// What clients ask for on their sockets after the handshake (proto/transport/requests.h). A client's next
// request is read after the answer to this one. Owned by Listener. REQUIRES: the listener's thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "daemon/lane/lanes.h"
#include "daemon/service/connections.h"
#include "daemon/service/inbox.h"
#include "proto/base/unique_fd.h"
#include "proto/transport/requests.h"

namespace xpud::service {

class Requests {
 public:
  // `connections` and `inbox` outlive this, and this outlives `lanes`, which post answers to the inbox.
  Requests(lane::Lanes& lanes, Connections& connections, Inbox& inbox)
      : lanes_(lanes), connections_(connections), inbox_(inbox) {}
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  // Receives a request and begins it. A client that breaks the protocol loses its session.
  void Take(uint64_t key, const Connection& client);
  // The connection has ended: gives back the memory of its profiles.
  void End(uint64_t key);

 private:
  using Request = transport::Request;
  struct SentProfile {
    lane::Lane* lane = nullptr;
    UniqueFd memory;
  };
  // Returns an error if the client broke the protocol.
  absl::Status Receive(uint64_t key, const Connection& client);
  absl::Status OpenDevice(uint64_t key, const Connection& client, uint32_t device);
  absl::Status ShareMemory(uint64_t key, const Connection& client, const Request& request, UniqueFd memory);
  // Returns the lane of a device that is to be profiled.
  static absl::StatusOr<lane::Lane*> FindProfiled(lane::Lanes& lanes, const Connection& client,
                                                  uint32_t device);
  absl::Status StartProfile(uint64_t key, const Connection& client, const Request& request);
  absl::Status StopProfile(uint64_t key, const Connection& client, uint32_t device);
  // Answers StopProfile; an error says why there is no profile.
  void SendProfile(uint64_t key, lane::Lane& lane, uint32_t device, absl::StatusOr<UniqueFd> memory);
  // Gives a profile's memory back to the system, although the client may keep its descriptor.
  static void Empty(SentProfile profile);
  // Sends the answer, with `fds` if there are any.
  void Answer(uint64_t key, uint32_t id, const absl::Status& status, std::span<const int> fds = {},
              uint64_t value = 0);

  lane::Lanes& lanes_;
  Connections& connections_;
  Inbox& inbox_;
  // The last profile that each connection was sent, by device.
  absl::flat_hash_map<uint64_t, std::map<uint32_t, SentProfile>> profiles_;
};

}  // namespace xpud::service
