// The client's end of a session over a network. What the client's library sees is a session over shared
// memory, whose other end is here: one thread sends the commands that arrive on its ring, another one writes
// what comes back to its pages. Where the client wants it, a connection that is lost is made anew, and the
// library waits meanwhile as it waits for a slow daemon.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/remote/client_call.h"
#include "proto/remote/event_loop.h"
#include "proto/remote/frame.h"
#include "proto/remote/outbox.h"
#include "proto/transport/handshake.h"
#include "proto/transport/shm_server.h"

namespace xpud::remote {

class StreamClient {
 public:
  struct Options {
    std::string address;
    std::chrono::milliseconds timeout;  // for the first connection
    std::chrono::milliseconds
        reconnect{};  // to try to come back for so long; 0: a lost connection is the end
  };

  // `socket`: to the library, which has sent its greeting. Opens the session and welcomes the library.
  // Errors: Unavailable (nobody answers there in time), Unauthenticated, or what the other end says.
  static absl::StatusOr<std::unique_ptr<StreamClient>> Connect(const Options& options,
                                                               const transport::Hello& hello,
                                                               UniqueFd socket);
  ~StreamClient();
  StreamClient(const StreamClient&) = delete;
  StreamClient& operator=(const StreamClient&) = delete;

  // Until the library hangs up, its process (`client`: a pidfd, or none) ends, or the session has ended.
  void Run(const UniqueFd& client);

 private:
  using Clock = std::chrono::steady_clock;

  StreamClient(const Options& options, UniqueFd socket)
      : options_(options), socket_(std::move(socket)), outbox_(options.reconnect.count() > 0) {}
  // Makes a connection, says `greeting` there, and gives what is answered.
  absl::StatusOr<ServerFrame> OpenLink(const ClientFrame& greeting, std::chrono::milliseconds timeout);
  // How the connection has ended; waits for that.
  absl::Status CloseLink();
  absl::Status WelcomeLibrary(const ServerFrame& answer);
  void StartToReceive();
  // Sends commands for as long as the connection and the library are there.
  void Pump(int client);
  void Serve(int client);
  // Until Serve ends: sees that the library is gone, also while the other end does not read what is sent.
  void Watch(int client);
  void SetLink(std::shared_ptr<ClientCall> link);
  // Adds what the library waits for to `waits_`.
  void TakeWaitRequest();
  // Sends the commands of the ring; how many bytes there were. An error ends the session.
  absl::StatusOr<size_t> SendCommands();
  bool Send(ClientFrame& frame);
  void AddPayload(std::span<const std::byte> commands, ClientFrame& frame);
  // Makes another connection after `lost`; the error where there will be none.
  absl::Status Reconnect(const absl::Status& lost, int client);
  absl::Status TryAgain(std::chrono::milliseconds timeout);
  // Until commands arrive, the library asks for something on the socket, or there is something else to do.
  void Sleep(int client);
  void Look(int client, int timeout_ms, bool at_doorbell);
  bool AnswerSocket();
  // Whether to read on.
  bool HasArrived(const grpc::ByteBuffer* message);
  bool Take(const grpc::ByteBuffer& message);
  void Apply(const ServerFrame& frame);
  void ApplyMemory(const v1::MemoryState& memory);
  void Close(std::string_view why);
  void WakeSender();

  const Options options_;
  UniqueFd socket_;
  UniqueFd bell_;  // eventfd: the sender is to look at what follows
  UniqueFd over_;  // eventfd: the sender has ended
  std::unique_ptr<transport::ShmServer> server_;
  std::shared_ptr<ClientCall> link_;  // the sender's; replaced under the lock, for the watcher
  std::string key_;                   // by which the session can be resumed; empty: it cannot
  std::atomic<bool> down_{false};     // the connection
  std::atomic<bool> closed_{false};   // the session, of which the library was told
  std::atomic<bool> left_{false};     // by the library
  uint64_t waits_ = 0;                // what the library waits for, of which the other end was not told
  Clock::time_point next_flush_;      // for commands that the library does not wait for
  Inbox inbox_;
  Outbox<v1::ClientHead> outbox_;
  Mutex mutex_;
  std::vector<v1::CreditKept> kept_ ABSL_GUARDED_BY(mutex_);  // to be sent
  EventThread receiver_{"xpud-receive"};
};

}  // namespace xpud::remote
