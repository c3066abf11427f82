// The local end of a session with a daemon on another machine. On its socket it answers the client's library
// as a daemon would; a stream with two threads serves each device that the library opens.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/transport/handshake.h"
#include "proto/transport/requests.h"
#include "sdk/remote/stream_client.h"

namespace xpud::remote {

class Connector {
 public:
  // `socket` leads to the library, which has sent `hello`. Opens the session, and sends the library its
  // Welcome. Returns as StreamClient::OpenSession.
  static absl::StatusOr<std::unique_ptr<Connector>> Connect(const StreamClient::Options& options,
                                                            const transport::Hello& hello, UniqueFd socket);
  ~Connector();  // ends the streams

  // Runs until the library hangs up, its process (`client`: a pidfd, or -1) ends, or the session ends.
  void Run(const UniqueFd& client);

 private:
  struct OnDevice {
    std::unique_ptr<StreamClient> stream;
    bool fds_sent = false;
    std::thread thread;
  };

  Connector(const StreamClient::Options& options, UniqueFd socket)
      : options_(options), socket_(std::move(socket)) {}
  // Starts the thread that runs the device's stream.
  absl::Status Start(uint32_t device);
  // Answers one request. Returns false if the library has hung up or breaks the protocol.
  bool TakeRequest();
  absl::Status OpenDevice(uint32_t device);
  // Ends the streams: lets them tell the gateway, then cuts them.
  void Leave();

  const StreamClient::Options options_;
  const UniqueFd socket_;
  UniqueFd ended_;  // eventfd: counts streams that have ended
  StreamClient::Opened session_;
  std::array<OnDevice, transport::kMaxDevices> devices_;
  int running_ = 0;  // streams
  Mutex mutex_;
  // Of the first stream that ended.
  std::string why_ended_ ABSL_GUARDED_BY(mutex_);
  transport::ClosedWord ended_as_ ABSL_GUARDED_BY(mutex_) = transport::kSessionOpen;
};

}  // namespace xpud::remote
