// A relay between a gRPC stream and a session's pages. The test has the other ends.
#include "daemon/gateway/session_relay.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "proto/remote/call_server.h"
#include "proto/remote/client_call.h"
#include "proto/transport/shm_client.h"
#include "proto/transport/shm_server.h"
#include "proto/wire/encode.h"

namespace xpud::remote {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class SessionRelayTest : public testing::Test {
 protected:
  SessionRelayTest() : calls_(builder_, 1) {
    int sockets[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    daemon_socket_.Reset(sockets[1]);
    transport::DeviceFds fds;
    daemon_ = std::move(*transport::ShmServer::Create(fds));
    auto transport = *transport::ShmClient::Create(
        std::make_shared<transport::SessionSocket>(UniqueFd(sockets[0])), std::move(fds),
        daemon_->staging().bytes.size(), transport::ShmClient::Waits::kForDaemon);
    relay_ = std::make_unique<SessionRelay>(std::move(transport), /*resumable=*/false);
    int port = 0;
    builder_.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    calls_.AddMethod(kSessionMethod, [this](ServerCall& call) {
      EXPECT_TRUE(relay_->Run(call).ok());
      return grpc::Status::OK;
    });
    server_ = builder_.BuildAndStart();
    EXPECT_TRUE(calls_.Start().ok());
    stream_ = std::make_unique<ClientCall>(
        client_.loop(),
        grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()),
        kSessionMethod, std::map<std::string, std::string>());
  }
  ~SessionRelayTest() override {
    ClientFrame end;
    end.head.set_ends(true);
    Send(0, std::move(end));
    stream_->WritesDone();
    stream_->Cancel();
    (void)stream_->Finish();
    calls_.Stop(*server_, milliseconds(0));
  }

  // Sends `commands` no-ops of queue 0 as one frame.
  void Send(int commands, ClientFrame frame = {}) {
    wire::AllocateCommand command = {
        wire::Header(wire::CommandKind::kAllocate, 0, sizeof(command)), {1, 1}, 64};
    for (int i = 0; i < commands; ++i) frame.payload.emplace_back(&command, sizeof(command));
    frame.head.set_command_bytes(commands * sizeof(command));
    if (commands != 0) frame.head.set_number(++number_);
    ASSERT_TRUE(stream_->Write(Serialize(frame)));
  }
  void Ask(int commands, uint64_t waits) {
    ClientFrame frame;
    frame.head.set_waits(waits);
    Send(commands, std::move(frame));
  }
  // Waits until the relay asks the daemon for an answer. Returns what it asked for.
  uint64_t RequestedWait() {
    while (true) {
      if (const uint64_t question = daemon_->TakeWaitRequest()) return question;
      EXPECT_TRUE(daemon_->Receive().ok());
      std::this_thread::yield();
    }
  }
  void Complete(uint32_t queue, uint64_t sequence) {
    std::atomic_ref<uint64_t>(*daemon_->CompletedWord(queue)).store(sequence, std::memory_order_release);
    daemon_->WakeClient();
  }
  // Returns false after the last frame.
  bool Read(ServerFrame& frame) {
    grpc::ByteBuffer message;
    frame = {};
    return stream_->Read(message) && Parse(message, frame);
  }
  // Reads until the client has been told that the queue has reached `sequence`. Returns the number of frames
  // with progress.
  int FramesUntil(uint32_t queue, uint64_t sequence) {
    int frames = 0;
    for (ServerFrame frame; Read(frame);) {
      if (frame.head.queues_size() != 0) ++frames;
      for (const v1::QueueState& state : frame.head.queues()) {
        if (state.queue() == queue && state.completed() >= sequence) return frames;
      }
    }
    ADD_FAILURE() << "the stream has ended";
    return frames;
  }
  // Lets the daemon run that many commands, one every 20 us or slower. Returns how many frames report them,
  // and the time that it took.
  std::pair<int, Clock::duration> RunAndCountFrames(int commands) {
    const auto start = Clock::now();
    std::thread device([&] {
      for (int i = 1; i <= commands; ++i) {
        std::this_thread::sleep_for(microseconds(20));
        Complete(0, i);
      }
    });
    const int frames = FramesUntil(0, commands);
    device.join();
    return {frames, Clock::now() - start};
  }

  UniqueFd daemon_socket_;
  std::unique_ptr<transport::ShmServer> daemon_;
  std::unique_ptr<SessionRelay> relay_;
  grpc::ServerBuilder builder_;
  CallServer calls_;
  std::unique_ptr<grpc::Server> server_;
  EventThread client_{"client"};
  std::unique_ptr<ClientCall> stream_;
  uint64_t number_ = 0;
};

TEST_F(SessionRelayTest, AClientThatWaitsForACommandHearsOnlyOfItsEnd) {
  constexpr int kCommands = 4000;
  Ask(kCommands, transport::WaitsFor({0, kCommands}));
  EXPECT_EQ(RequestedWait(), transport::WaitsFor({0, kCommands}));
  EXPECT_EQ(RunAndCountFrames(kCommands).first, 1);
}

TEST_F(SessionRelayTest, ARequestThatCrossesWithItsAnswerHoldsUpNoLaterProgress) {
  Send(2);
  Complete(0, 1);
  FramesUntil(0, 1);
  Ask(0, transport::WaitsFor({0, 1}));
  RequestedWait();
  Complete(0, 2);
  FramesUntil(0, 2);
}

TEST_F(SessionRelayTest, ProgressThatNobodyWaitsForIsGathered) {
  constexpr int kCommands = 1000;
  Send(kCommands);
  const auto [frames, time] = RunAndCountFrames(kCommands);
  EXPECT_LE(frames, time / microseconds(200) + 2);
}

// Another thread of the client asks while the first waits for a command that never ends.
TEST_F(SessionRelayTest, AnotherRequestMeanwhileIsAnswered) {
  Ask(10, transport::WaitsFor({1, 1}));
  EXPECT_EQ(RequestedWait(), transport::WaitsFor({1, 1}));
  for (int i = 1; i <= 10; ++i) {
    Complete(0, i);
    Ask(0, transport::WaitsFor({0, static_cast<uint64_t>(i)}));
    FramesUntil(0, i);
  }
}

// Again with a thread that waits for a command that never ends.
TEST_F(SessionRelayTest, MoreCommandsThanTheRingHoldsPassMeanwhile) {
  constexpr int kFrames = 50, kCommands = 2000;  // 24 bytes each: 2.3 rings
  Ask(1, transport::WaitsFor({1, 1}));
  std::thread sender([&] {
    for (int i = 0; i < kFrames; ++i) Send(kCommands);
  });
  std::this_thread::sleep_for(milliseconds(20));  // until the ring is full
  size_t bytes = 0;
  while (bytes < (1 + kFrames * kCommands) * sizeof(wire::AllocateCommand)) {
    const auto commands = daemon_->Receive();
    ASSERT_TRUE(commands.ok()) << commands.status();
    bytes += commands->size();
    std::this_thread::yield();
  }
  sender.join();
  Ask(0, transport::WaitsFor({0, 1 + kFrames * kCommands}));
  Complete(0, 1 + kFrames * kCommands);
  FramesUntil(0, 1 + kFrames * kCommands);
}

TEST_F(SessionRelayTest, AMilestoneThatIsNoneIsAnyProgress) {
  for (const uint64_t waits : {transport::kAnyProgress, uint64_t{255}, ~uint64_t{0}}) {
    Ask(1, waits);
    EXPECT_NE(RequestedWait(), 0);
    Complete(0, number_);
    EXPECT_EQ(FramesUntil(0, number_), 1);
  }
}

// The daemon empties the pages of a session that ends.
TEST_F(SessionRelayTest, WhatWasEmptiedIsNotToldAsProgress) {
  constexpr uint32_t kQueue = wire::kMaxQueues - 1;
  const wire::NopCommand command = {wire::Header(wire::CommandKind::kNop, kQueue, sizeof(command))};
  ClientFrame sent;
  sent.payload.emplace_back(&command, sizeof(command));
  sent.head.set_command_bytes(sizeof(command));
  sent.head.set_number(++number_);
  ASSERT_TRUE(stream_->Write(Serialize(sent)));
  Complete(kQueue, 1);
  FramesUntil(kQueue, 1);
  daemon_.reset();
  ServerFrame frame;
  do {
    ASSERT_TRUE(Read(frame));
    EXPECT_EQ(frame.head.queues_size(), 0);
  } while (frame.head.closed().empty());
}

TEST_F(SessionRelayTest, WhyTheDaemonClosesTheSessionIsToldWhateverIsWaitedFor) {
  Ask(1, transport::WaitsFor({0, 1}));
  RequestedWait();
  daemon_->Close("enough of it", transport::kSessionClosed);
  ServerFrame frame;
  while (frame.head.closed().empty() && Read(frame)) continue;
  EXPECT_NE(frame.head.closed().find("enough of it"), std::string::npos) << frame.head.closed();
  EXPECT_FALSE(frame.head.daemon_ended());
}

TEST_F(SessionRelayTest, TheEndOfTheDaemonIsTold) {
  Ask(1, transport::WaitsFor({0, 1}));
  RequestedWait();
  daemon_->Close("the daemon ends", transport::kDaemonEnded);
  ServerFrame frame;
  while (frame.head.closed().empty() && Read(frame)) continue;
  EXPECT_TRUE(frame.head.daemon_ended()) << frame.head.closed();
}

}  // namespace
}  // namespace xpud::remote
