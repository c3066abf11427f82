// The agent's local socket: accepts connections, and answers the gRPC calls on each as those of its user.
//
// Each connection has a gRPC server of its own, since only then do its calls carry what the kernel says about
// it. Servers of gRPC's callback API share the library's threads: 100 connections take 10 threads and 2.6
// MiB, where servers of its synchronous API take 208 threads and 7.5 MiB. Calls run on the threads of Turns.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/statusor.h"
#include "deploy/agent/core/counters.h"
#include "deploy/agent/grants/desk.h"
#include "deploy/agent/grants/turns.h"
#include "proto/base/unique_fd.h"

namespace grpc {
class CallbackServerContext;
class ServerUnaryReactor;
class Service;
}  // namespace grpc

namespace xpud::agent {

// A connection, as the services on it see it: it runs their calls.
class Calls {
 public:
  struct Call {
    std::string_view engine;  // for metrics
    const char* action;
    Turns* turns;  // where the call waits for its turn, as this user's
    uint32_t user;
    Turns::Pace pace;
  };

  virtual ~Calls() = default;
  // Returns the reactor of the call, which it finishes with what `work` returns, or with why that has not
  // run.
  virtual grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext& context, const Call& call,
                                           std::function<absl::Status()> work) = 0;
};

class Door {
 public:
  // Makes a service that a connection has beside Grants; null: this caller has none. The service goes before
  // `calls`. Called on the door's thread.
  using MakeService = std::function<std::unique_ptr<grpc::Service>(const Caller& caller, Calls& calls)>;

  // Root and the agent's user have connections beside those of all users.
  static constexpr size_t kMaxConnections = 64, kMaxConnectionsOfUser = 16;
  // Of root, and of the agent's own user; beside the others. A hundred prologs of Slurm may run at once.
  static constexpr size_t kMaxConnectionsOfOperator = 256;
  static constexpr int kMaxCalls = 4;  // at a time, on a connection
  static constexpr int kMaxMessage = 64 << 10;

  // Listens at `path`, for everyone. The folder must belong to this user or root. A socket that an earlier
  // agent has left is replaced; AlreadyExists: another agent listens there. The others, and what
  // `make_service` needs, outlive the door.
  static absl::StatusOr<std::unique_ptr<Door>> Open(const std::string& path, Desk& desk, Turns& turns,
                                                    Counters& counters, MakeService make_service);
  // Cancels calls, waits until they have ended, and removes the socket. REQUIRES: Turns has ended.
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

 private:
  class Connection;

  Door(std::string path, Desk& desk, Turns& turns, Counters& counters, MakeService make_service);
  absl::Status Listen();
  void Run();
  void AcceptSome();
  absl::Status Admit(UniqueFd socket);
  // Whether the user may have one more connection.
  absl::Status CheckRoomFor(uint32_t uid) const;
  void HasRefused(const absl::Status& why);
  // Ends connections that have hung up and have no calls any more.
  void RemoveEnded();

  const std::string path_;
  Desk& desk_;
  Turns& turns_;
  Counters& counters_;
  const MakeService make_service_;
  UniqueFd socket_, events_, wake_;
  bool listens_ = false;  // the file is ours
  std::atomic<bool> ends_{false};
  // Of the door's thread.
  std::map<uint64_t, std::unique_ptr<Connection>> connections_;
  uint64_t next_ = 0;
  uint64_t refused_ = 0;  // connections, since the last line of the log that says so
  std::chrono::steady_clock::time_point next_log_ = {};
  std::thread thread_;
};

}  // namespace xpud::agent
