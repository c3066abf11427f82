// The client's end of a session over a network. To the client's library it looks like a daemon on shared
// memory: one thread sends the commands that arrive on the ring, another writes results to the pages. If the
// client asks for it, a lost connection is made again; meanwhile the library waits as for a slow daemon.
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
        reconnect{};  // how long to try to reconnect; 0: a lost connection ends the session
  };

  // `socket` leads to the library, which has sent its Hello. Opens the session and sends the library its
  // Welcome. Returns Unavailable (no answer in time), Unauthenticated, or the error that the gateway reports.
  static absl::StatusOr<std::unique_ptr<StreamClient>> Connect(const Options& options,
                                                               const transport::Hello& hello,
                                                               UniqueFd socket);
  ~StreamClient();
  StreamClient(const StreamClient&) = delete;
  StreamClient& operator=(const StreamClient&) = delete;

  // Runs until the library hangs up, its process (`client`: a pidfd, or -1) ends, or the session ends.
  void Run(const UniqueFd& client);

 private:
  using Clock = std::chrono::steady_clock;

  StreamClient(const Options& options, UniqueFd socket)
      : options_(options), socket_(std::move(socket)), outbox_(options.reconnect.count() > 0) {}
  // Opens a connection, sends `greeting`, and returns the reply.
  absl::StatusOr<ServerFrame> OpenLink(const ClientFrame& greeting, std::chrono::milliseconds timeout);
  // Waits for the end of the connection. Returns its status.
  absl::Status CloseLink();
  absl::Status WelcomeLibrary(const ServerFrame& answer);
  void StartToReceive();
  // Sends commands while the connection and the library exist.
  void SendLoop(int client);
  void Serve(int client);
  // Runs on a thread of its own until Serve ends. Notices that the library is gone even if the gateway does
  // not read.
  void Watch(int client);
  void SetLink(std::shared_ptr<ClientCall> link);
  // Adds what the library waits for to `waits_`.
  void TakeWaitRequest();
  // Sends the commands of the ring. Returns how many bytes there were. An error ends the session.
  absl::StatusOr<size_t> SendCommands();
  bool Send(ClientFrame& frame);
  void AddPayload(std::span<const std::byte> commands, ClientFrame& frame);
  // Connects again after `lost`. Returns an error if that is not possible.
  absl::Status Reconnect(const absl::Status& lost, int client);
  absl::Status ReconnectOnce(std::chrono::milliseconds timeout);
  // Waits for commands, for requests on the socket, or for other work.
  void Sleep(int client);
  void AwaitEvent(int client, int timeout_ms, bool at_doorbell);
  bool HandleSocket();
  // Returns whether to read on.
  bool HasArrived(const grpc::ByteBuffer* message);
  bool Take(const grpc::ByteBuffer& message);
  void Apply(const ServerFrame& frame);
  void ApplyMemory(const v1::MemoryState& memory);
  void Close(std::string_view why);
  void WakeSender();

  const Options options_;
  UniqueFd socket_;
  UniqueFd wake_;   // eventfd: wakes the sender
  UniqueFd ended_;  // eventfd: the sender has ended
  std::unique_ptr<transport::ShmServer> server_;
  std::shared_ptr<ClientCall> link_;  // the sender's; replaced under the lock, for the watcher
  std::string key_;                   // resumes the session; empty: it cannot be resumed
  std::atomic<bool> down_{false};     // the connection is lost
  std::atomic<bool> closed_{false};   // the session has ended, and the library was told
  std::atomic<bool> left_{false};     // the library has left
  uint64_t waits_ = 0;                // what the library waits for and the gateway was not told
  Clock::time_point next_flush_;      // for commands that the library does not wait for
  Inbox inbox_;
  Outbox<v1::ClientHead> outbox_;
  Mutex mutex_;
  std::vector<v1::CreditKept> kept_ ABSL_GUARDED_BY(mutex_);  // replies to be sent
  EventThread receiver_{"xpud-receive"};
};

}  // namespace xpud::remote
