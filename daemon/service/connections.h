// The connections that clients have to this daemon. A connection has one of the Seats from its acceptance.
// It is watched for messages, for hang-ups, and for the end of the client's process, whose pidfd decides
// because a forked worker may keep the socket open. Owned by Listener. REQUIRES: the listener's thread.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "daemon/service/door.h"
#include "daemon/service/poller.h"
#include "daemon/service/seats.h"
#include "daemon/session/session.h"
#include "daemon/tenant/claims.h"
#include "proto/base/unique_fd.h"

namespace xpud::service {

struct Connection {
  UniqueFd socket;
  UniqueFd process;  // pidfd
  session::Peer peer;
  Tenant seat;                                // who has its seat
  std::optional<uint32_t> gateway_uid;        // what its door says
  bool at_claim = false;                      // its door is a claim's
  std::shared_ptr<session::Session> session;  // null until the handshake is done, or if it has a view
  std::chrono::steady_clock::time_point accepted;

  absl::Status Send(std::span<const std::byte> message, std::span<const int> fds = {}) const;
  void ShutDown() const { shutdown(socket.get(), SHUT_RDWR); }  // the hang-up ends the connection
};

class Connections {
 public:
  // Events of connections name their keys. `poller` and `claims` outlive this.
  Connections(Poller& poller, const Claims& claims);
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  void SetMaxPerUser(size_t max) { seats_.SetMaxPerUser(max); }
  // Accepts all clients that wait at the door. Those without a seat are refused, with the reason.
  void AcceptAt(const Door& door);
  // Returns null if it has ended.
  Connection* Find(uint64_t key);
  Connection* FindSession(uint64_t session);
  // Nothing that the client sends is read until Resume; its hang-up is noticed.
  absl::Status Pause(uint64_t key) { return Watch(key, EPOLLRDHUP); }
  absl::Status Resume(uint64_t key) { return Watch(key, EPOLLIN | EPOLLRDHUP); }
  // Closes it, and gives its seat back.
  void End(uint64_t key);
  // Those that were accepted before `time` and have no session.
  std::vector<uint64_t> WithoutSession(std::chrono::steady_clock::time_point before) const;
  bool empty() const { return connections_.empty(); }

 private:
  // Starts watching a client that has a seat. Returns false if its process has ended or cannot be watched.
  bool Admit(const Door& door, const Tenant& tenant, UniqueFd socket, UniqueFd process, const ucred& peer);
  // Refuses one client when there are no file descriptors. Returns false if no client is pending.
  bool RefuseOne(const Door& door);
  absl::Status Watch(uint64_t key, uint32_t events);

  Poller& poller_;
  const Claims& claims_;
  UniqueFd spare_;  // closed to accept a connection when there are no descriptors
  absl::flat_hash_map<uint64_t, Connection> connections_;  // by key
  Seats seats_;
  uint64_t next_key_ = 1;
};

// Tells a client why it gets no session. Nothing that it sends is read any more.
void SendRefusal(int socket, const absl::Status& why);

}  // namespace xpud::service
