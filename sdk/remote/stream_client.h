// The client's end of one stream of a remote session: the session on one device. To the client's library it
// looks like a daemon on shared memory: one thread sends the commands that arrive on the ring, another writes
// results to the pages. If the session is resumable, a lost connection is made again; meanwhile the library
// waits as for a slow daemon.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
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

  // A session, as the gateway has opened it.
  struct Opened {
    std::unique_ptr<StreamClient> stream;  // of device 0
    transport::Welcome welcome;
    std::string key;
    bool resumable = false;
  };
  // Opens a session and its device 0. Returns Unavailable (no answer in time), Unauthenticated, or the error
  // that the gateway reports.
  static absl::StatusOr<Opened> OpenSession(const Options& options, const transport::Hello& hello);
  // Opens a further device of a session.
  static absl::StatusOr<std::unique_ptr<StreamClient>> OpenDevice(const Options& options,
                                                                  const std::string& key, bool resumable,
                                                                  uint32_t device);
  // As transport::SessionSocket::SetNice, for a session.
  static absl::Status SetNice(const Options& options, const std::string& key, uint32_t nice);
  ~StreamClient();
  StreamClient(const StreamClient&) = delete;
  StreamClient& operator=(const StreamClient&) = delete;

  // The shared memory for the library. REQUIRES: called once.
  transport::DeviceFds TakeFds() { return std::move(fds_); }
  // Runs until Leave, or until the session ends. Returns the reason of its end; empty after Leave.
  std::string Run();
  // After Run: what the library was told.
  transport::ClosedWord closed_as() const { return closed_as_.load(); }
  // The library has left. Thread-safe.
  void Leave();
  // Ends the connection at once. Thread-safe.
  void Cut();
  // Tells the library that the session has ended. Thread-safe.
  void Close(std::string_view why, transport::ClosedWord word);

 private:
  using Clock = std::chrono::steady_clock;

  StreamClient(const Options& options, uint32_t device, bool resumable)
      : options_(options), device_(device), outbox_(resumable) {}
  static absl::StatusOr<std::unique_ptr<StreamClient>> Create(const Options& options, uint32_t device,
                                                              bool resumable);
  // Opens a connection, sends `greeting`, and returns the reply.
  absl::StatusOr<ServerFrame> OpenLink(const ClientFrame& greeting, std::chrono::milliseconds timeout);
  // Waits for the end of the connection. Returns its status.
  absl::Status CloseLink();
  void StartToReceive();
  // Sends commands while the connection and the library exist.
  void SendLoop();
  void SetLink(std::shared_ptr<ClientCall> link);
  // Adds what the library waits for to `waits_`.
  void TakeWaitRequest();
  // Sends the commands of the ring. Returns how many bytes there were. An error ends the session.
  absl::StatusOr<size_t> SendCommands();
  bool Send(ClientFrame& frame);
  void AddPayload(std::span<const std::byte> commands, ClientFrame& frame);
  // Connects again after `lost`. Returns an error if that is not possible.
  absl::Status Reconnect(const absl::Status& lost);
  absl::Status ReconnectOnce(std::chrono::milliseconds timeout);
  // Waits for commands or for other work.
  void Sleep();
  void AwaitEvent(int timeout_ms, bool at_doorbell);
  // Returns whether to read on.
  bool HasArrived(const grpc::ByteBuffer* message);
  bool Take(const grpc::ByteBuffer& message);
  void Apply(const ServerFrame& frame);
  void ApplyMemory(const v1::MemoryState& memory);
  void WakeSender();

  const Options options_;
  const uint32_t device_;
  UniqueFd wake_;  // eventfd: wakes the sender
  std::unique_ptr<transport::ShmServer> server_;
  transport::DeviceFds fds_;
  std::shared_ptr<ClientCall> link_;  // the sender's; replaced under the lock, for Cut
  std::string key_;                   // of the session
  bool resumable_ = false;
  std::atomic<bool> down_{false};    // the connection is lost
  std::atomic<bool> closed_{false};  // the session has ended, and the library was told
  std::atomic<transport::ClosedWord> closed_as_{transport::kSessionOpen};
  std::atomic<bool> left_{false};  // the library has left
  uint64_t waits_ = 0;             // what the library waits for and the gateway was not told
  Clock::time_point next_flush_;   // for commands that the library does not wait for
  Inbox inbox_;
  Outbox<v1::ClientHead> outbox_;
  Mutex mutex_;
  std::vector<v1::CreditKept> kept_ ABSL_GUARDED_BY(mutex_);  // replies to be sent
  std::string why_closed_ ABSL_GUARDED_BY(mutex_);
  EventThread receiver_{"xpud-receive"};
};

}  // namespace xpud::remote
