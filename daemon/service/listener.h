// Serves clients of this machine: they come in at doors, and do their handshake here; then their requests are
// answered. Runs on main's thread until a signal, or until there was no client for a while.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "daemon/lane/lanes.h"
#include "daemon/service/connections.h"
#include "daemon/service/door.h"
#include "daemon/service/inbox.h"
#include "daemon/service/poller.h"
#include "daemon/service/requests.h"
#include "daemon/service/seats.h"
#include "daemon/service/views.h"
#include "proto/base/unique_fd.h"
#include "proto/transport/handshake.h"

namespace xpud::service {

class Listener {
 public:
  struct Options {
    std::string socket_path;
    unsigned socket_mode = 0600;
    std::optional<uint32_t> gateway_uid = {};  // the user whose gateway may set the tenant of a session
    std::function<void()> on_hangup = [] {};   // called on SIGHUP, on the serving thread
    Views::Show show = {};                     // the listener destroys a view when its user hangs up
  };

  // Takes a lock beside the socket path; returns AlreadyExists if another daemon holds it. Listens on
  // `handed` if that is valid; its file stays. Otherwise creates a socket, and removes it in the end.
  // `claims` outlives the listener.
  static absl::StatusOr<std::unique_ptr<Listener>> Create(Options options, const Claims& claims,
                                                          UniqueFd handed = {});
  ~Listener();

  // Limits for new clients.
  struct Limits {
    // End the daemon this long after the last client, or as soon as its program was replaced and there is
    // none.
    std::optional<std::chrono::seconds> exit_when_idle;
    uint64_t host_memory = 0;                  // bytes that a session may share with devices
    size_t user_clients = Seats::kMaxPerUser;  // connections of one user
  };
  // REQUIRES: Serve has not started, or this is its thread.
  void SetLimits(const Limits& limits);
  // Serves until SIGINT or SIGTERM, or idleness. REQUIRES: the caller has blocked these signals and SIGHUP.
  void Serve(lane::Lanes& lanes);
  // Hangs up on a session. Thread-safe.
  void HangUp(uint64_t session);
  // Clients may come in at one more door from now on. Thread-safe.
  void AddDoor(Door door);
  // Closes a claim's doors. Thread-safe.
  void CloseDoorsOf(const std::string& claim);

 private:
  Listener(Options options, const Claims& claims)
      : options_(std::move(options)), claims_(claims), connections_(poller_, claims), views_(options_.show) {}
  absl::Status Keep(Door door);
  absl::Status Open(UniqueFd handed);
  void ServeUntilTheEnd(lane::Lanes& lanes);
  void HandleEvent(lane::Lanes& lanes, const Poller::Event& event);
  // Reads a client's first messages, of which the last one is its Hello, or a wish to see its sessions.
  void Greet(lane::Lanes& lanes, uint64_t key, Connection& client);
  absl::Status TakeVouch(Connection& client, const transport::Vouch& vouch) const;
  absl::Status OpenSession(lane::Lanes& lanes, Connection& client, const transport::Hello& hello);
  absl::Status ShowSessions(uint64_t key, const Connection& client);
  static void Refuse(const Connection& client, const transport::Hello& hello, const absl::Status& why);
  void Drop(lane::Lanes& lanes, uint64_t key, const char* reason);
  void DropSilentClients(lane::Lanes& lanes);
  bool IsIdleTooLong() const;
  // Whether a newer program took the place of ours: the next client is to have that one.
  bool IsReplaced() const;
  // Returns false if a signal ends the daemon.
  bool TakeSignals();

  const Options options_;
  const Claims& claims_;
  Limits limits_;
  UniqueFd lock_, signals_, program_;
  Poller poller_;
  Inbox inbox_;
  std::map<uint64_t, Door> doors_;  // by number
  uint64_t next_door_ = 0;
  Connections connections_;
  Views views_;
  std::unique_ptr<Requests> requests_;  // from Serve on
  bool ends_ = false;                   // a signal has arrived
  std::chrono::steady_clock::time_point last_client_ = std::chrono::steady_clock::now();
};

}  // namespace xpud::service
