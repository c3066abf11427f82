// Accepts clients on the unix socket and watches over their lives: the handshake, hang-ups, and the end of
// their process (a forked worker may keep the socket open, so the pidfd decides). Runs on main's thread until
// a signal, or until nobody has been connected for a while.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "daemon/scheduler/engine.h"
#include "daemon/service/places.h"
#include "proto/base/unique_fd.h"
#include "proto/transport/handshake.h"

namespace xpud::service {

class Listener {
 public:
  struct Options {
    std::string socket_path;
    unsigned socket_mode = 0600;
    std::optional<uint32_t> gateway_uid =
        {};                                   // may say for whom it asks, as this process's user and root may
    std::function<void()> on_hangup = [] {};  // SIGHUP, on the thread that serves
  };

  // Takes the socket path for itself (a lock beside it); AlreadyExists when another daemon holds it. Listens
  // at `handed` where that is valid, which stays there; otherwise at a socket that it makes and removes.
  static absl::StatusOr<std::unique_ptr<Listener>> Create(Options options, UniqueFd handed = {});
  ~Listener();

  // For clients that come from now on.
  struct Limits {
    std::optional<std::chrono::seconds> exit_when_idle;  // end this long after the last client
    uint64_t host_memory = 0;                            // bytes that a session may share with its devices
    size_t user_clients = Places::kMaxPerUser;           // that a user may have connected
  };
  // Before Serve, or on its thread, as in `on_hangup`.
  void SetLimits(const Limits& limits);
  // Serves until SIGINT or SIGTERM (blocked by the caller, as is SIGHUP), or idleness.
  void Serve(scheduler::Engine& engine);
  // Any thread: hangs up on a session.
  void HangUp(uint64_t session) {
    Post([this, session] { ShutDown(session); });
  }

 private:
  struct Client {
    UniqueFd socket;
    UniqueFd process;      // pidfd
    uint64_t session = 0;  // 0 until the handshake is done
    session::Peer peer;
    std::chrono::steady_clock::time_point accepted;
  };

  explicit Listener(Options options) : options_(std::move(options)) {}
  absl::Status Bind(UniqueFd handed);
  void Accept();
  // Watches over a client that has a place; false: over none, it has ended or cannot be watched.
  bool Admit(UniqueFd socket, UniqueFd process, const ucred& peer);
  // One client, for want of file descriptors; false where none is there.
  bool TurnAway();
  void Greet(scheduler::Engine& engine, Client& client);
  absl::Status TakeVouch(Client& client, const transport::Vouch& vouch) const;
  absl::Status OpenSession(scheduler::Engine& engine, Client& client, const transport::Hello& hello);
  static void Refuse(const Client& client, const transport::Hello& hello, const absl::Status& why);
  // Host memory that a client shares: see proto/transport/host_memory.h. Until it is answered, nothing else
  // that the client sends is read.
  void TakeMemory(scheduler::Engine& engine, uint64_t key, Client& client);
  absl::Status ReceiveMemory(scheduler::Engine& engine, uint64_t key, Client& client);
  void Answer(scheduler::Engine& engine, uint64_t key, uint32_t id, const absl::Status& status);
  // Any thread: runs `task` on main's thread soon.
  void Post(std::function<void()> task);
  void RunTasks();
  void ShutDown(uint64_t session);
  void Drop(scheduler::Engine& engine, uint64_t key, const char* reason);
  void HandleEvent(scheduler::Engine& engine, uint64_t tag, uint32_t events);
  void DropSilentClients(scheduler::Engine& engine);
  bool IsIdleTooLong() const;
  // False: a signal ends the daemon.
  bool TakeSignals();

  const Options options_;
  Limits limits_;
  bool bound_ = false;  // the socket at the path is ours to remove
  UniqueFd lock_, socket_, epoll_, signals_, inbox_;
  UniqueFd spare_;                                 // given up to take a connection where there is no other
  absl::flat_hash_map<uint64_t, Client> clients_;  // by key
  Places places_;                                  // that those have
  session::TableSpace tables_;                     // the engine thread's, while there is one
  uint64_t next_key_ = 16;
  uint64_t next_session_ = 1;
  std::chrono::steady_clock::time_point last_client_ = std::chrono::steady_clock::now();
  Mutex mutex_;
  std::vector<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::service
