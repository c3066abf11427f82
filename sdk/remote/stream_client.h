// The client's end of a session over a network. What the client's library sees is a session over shared
// memory, whose other end is here: one thread sends the commands that arrive on its ring, another one writes
// what comes back to its pages.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/remote/remote.grpc.pb.h"
#include "proto/transport/handshake.h"
#include "proto/transport/shm_server.h"

namespace xpud::remote {

class StreamClient {
 public:
  // `socket`: to the library, which has sent its greeting. Opens the session and welcomes the library.
  // Errors: Unavailable (nobody answers there within `timeout`), Unauthenticated, or what the other end says.
  static absl::StatusOr<std::unique_ptr<StreamClient>> Connect(const std::string& address,
                                                               const transport::Hello& hello,
                                                               std::chrono::milliseconds timeout,
                                                               UniqueFd socket);
  ~StreamClient();
  StreamClient(const StreamClient&) = delete;
  StreamClient& operator=(const StreamClient&) = delete;

  // Until the library hangs up, its process (`client`: a pidfd, or none) ends, or the session has ended.
  void Run(const UniqueFd& client);

 private:
  using Stream = grpc::ClientReaderWriter<v1::ClientMessage, v1::ServerMessage>;

  StreamClient() = default;
  absl::Status Open(const std::string& address, const transport::Hello& hello,
                    std::chrono::milliseconds timeout);
  absl::Status WelcomeLibrary(const transport::Welcome& welcome);
  // Sends the commands of the ring; whether there were any. An error ends the session.
  absl::StatusOr<bool> SendCommands();
  void AddStaging(std::span<const std::byte> commands, v1::ClientMessage& message);
  // Until commands arrive, the library asks for something on the socket, or the session is to end.
  void Sleep(int client);
  bool AnswerSocket();
  void ReceiveLoop();
  void Apply(const v1::ServerMessage& message);
  void ApplyMemory(const v1::MemoryState& memory);
  void StopSending();
  void WakeSender();

  std::string address_;
  std::unique_ptr<v1::Remote::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<transport::ShmServer> server_;
  UniqueFd socket_;
  UniqueFd bell_;                   // eventfd: the sender is to look at what follows
  std::atomic<bool> stops_{false};  // the sender is to end
  std::atomic<bool> told_{false};   // the library, why the session has ended; or it is gone
  Mutex mutex_;
  std::vector<v1::CreditKept> kept_ ABSL_GUARDED_BY(mutex_);  // to be sent
  std::binary_semaphore sent_{0};                             // the sender has ended
  v1::ClientMessage out_;                                     // the sender's
  std::thread receiver_;
};

}  // namespace xpud::remote
