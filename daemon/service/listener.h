// Accepts clients on the unix socket and manages their connections: handshake, hang-ups, and the end of a
// client's process (its pidfd decides, because a forked worker may keep the socket open). Runs on main's
// thread until a signal, or until there was no client for a while.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "daemon/lane/lanes.h"
#include "daemon/service/places.h"
#include "daemon/service/user_view.h"
#include "proto/base/unique_fd.h"
#include "proto/transport/handshake.h"
#include "proto/transport/requests.h"

namespace xpud::service {

class Listener {
 public:
  struct Options {
    std::string socket_path;
    unsigned socket_mode = 0600;
    std::optional<uint32_t> gateway_uid = {};  // the user whose gateway may set the tenant of a session
    std::function<void()> on_hangup = [] {};   // called on SIGHUP, on the serving thread
    // Shows a user its own sessions on a connection; the listener destroys the view when the user hangs up.
    std::function<absl::StatusOr<std::unique_ptr<UserView>>(const Tenant&, UniqueFd)> show = {};
  };

  // Takes a lock beside the socket path; returns AlreadyExists if another daemon holds it. Listens on
  // `handed` if that is valid; its file stays. Otherwise creates a socket, and removes it in the end.
  static absl::StatusOr<std::unique_ptr<Listener>> Create(Options options, UniqueFd handed = {});
  ~Listener();

  // How many views of their sessions users may have, in all and each, those that are ending included.
  static constexpr size_t kMaxViews = 32, kMaxViewsPerUser = 4;

  // Limits for new clients.
  struct Limits {
    std::optional<std::chrono::seconds> exit_when_idle;  // end the daemon this long after the last client
    uint64_t host_memory = 0;                            // bytes that a session may share with devices
    size_t user_clients = Places::kMaxPerUser;           // connections of one user
  };
  // REQUIRES: Serve has not started, or this is its thread.
  void SetLimits(const Limits& limits);
  // Serves until SIGINT or SIGTERM, or idleness. REQUIRES: the caller has blocked these signals and SIGHUP.
  void Serve(lane::Lanes& lanes);
  // Hangs up on a session. Thread-safe.
  void HangUp(uint64_t session) {
    Post([this, session] { ShutDown(session); });
  }

 private:
  struct Client {
    UniqueFd socket;
    UniqueFd process;                           // pidfd
    std::shared_ptr<session::Session> session;  // null until the handshake is done
    std::map<uint32_t, UniqueFd> profiles;      // the last one that was sent, by device
    std::unique_ptr<UserView> view;             // of one that wants to see its sessions, and gets none
    session::Peer peer;
    std::chrono::steady_clock::time_point accepted;
  };

  explicit Listener(Options options) : options_(std::move(options)) {}
  absl::Status Bind(UniqueFd handed);
  void ServeUntilTheEnd(lane::Lanes& lanes);
  void Accept();
  // Starts watching a client that has a place. Returns false if its process has ended or cannot be watched.
  bool Admit(UniqueFd socket, UniqueFd process, const ucred& peer);
  // Refuses one client when there are no file descriptors. Returns false if no client is pending.
  bool RefuseOne();
  void Greet(lane::Lanes& lanes, Client& client);
  absl::Status TakeVouch(Client& client, const transport::Vouch& vouch) const;
  absl::Status OpenSession(lane::Lanes& lanes, Client& client, const transport::Hello& hello);
  absl::Status ShowSessions(Client& client);
  // Destroys a view on another thread: that waits for its calls in progress.
  void EndView(uint32_t uid, std::unique_ptr<UserView> view);
  static void Refuse(const Client& client, const transport::Hello& hello, const absl::Status& why);
  // Handles a request (proto/transport/requests.h). Nothing else that the client sends is read until the
  // request is answered.
  void TakeRequest(lane::Lanes& lanes, uint64_t key, Client& client);
  // Returns an error if the client broke the protocol.
  absl::Status ReceiveRequest(lane::Lanes& lanes, uint64_t key, Client& client);
  absl::Status OpenDevice(lane::Lanes& lanes, uint64_t key, const Client& client, uint32_t device);
  absl::Status ShareMemory(lane::Lanes& lanes, uint64_t key, const Client& client,
                           const transport::Request& request, UniqueFd memory);
  absl::Status StartProfile(lane::Lanes& lanes, uint64_t key, const Client& client,
                            const transport::Request& request);
  absl::Status StopProfile(lane::Lanes& lanes, uint64_t key, const Client& client,
                           const transport::Request& request);
  // `profile` may be null: there is none.
  void SendProfile(lane::Lanes& lanes, uint64_t key, const transport::Request& request,
                   absl::StatusOr<UniqueFd> memory);
  // Gives a profile's memory back to the system, although the client may keep its descriptor.
  static void Empty(lane::Lanes& lanes, uint32_t device, UniqueFd profile);
  // Sends the answer, with `fds` if there are any.
  void Answer(lane::Lanes& lanes, uint64_t key, uint32_t id, const absl::Status& status,
              std::span<const int> fds = {});
  // Runs `task` on main's thread soon. Thread-safe.
  void Post(std::function<void()> task);
  void RunTasks();
  void ShutDown(uint64_t session);
  void Drop(lane::Lanes& lanes, uint64_t key, const char* reason);
  void HandleEvent(lane::Lanes& lanes, uint64_t tag, uint32_t events);
  void DropSilentClients(lane::Lanes& lanes);
  bool IsIdleTooLong() const;
  // Returns false if a signal ends the daemon.
  bool TakeSignals();

  const Options options_;
  Limits limits_;
  bool bound_ = false;  // the socket's file must be removed
  UniqueFd lock_, socket_, epoll_, signals_, inbox_;
  UniqueFd spare_;  // closed to accept a connection when there are no descriptors
  absl::flat_hash_map<uint64_t, Client> clients_;  // by key
  Places places_;                                  // of these clients
  struct EndingView {
    uint32_t uid;
    std::future<void> ended;
  };
  std::vector<EndingView> ending_views_;
  uint64_t next_key_ = 16;
  std::chrono::steady_clock::time_point last_client_ = std::chrono::steady_clock::now();
  Mutex mutex_;
  std::vector<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::service
