// The client's end, with a gateway that breaks the protocol.
#include "sdk/remote/connector.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/remote/call_server.h"
#include "proto/transport/shm_client.h"
#include "proto/wire/commands.h"

namespace xpud::remote {
namespace {

constexpr std::chrono::seconds kTimeout{20};

class StreamClientTest : public testing::Test {
 protected:
  StreamClientTest() : calls_(builder_, 4) {
    builder_.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    int sockets[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    library_.Reset(sockets[0]);
    connector_.Reset(sockets[1]);
  }
  ~StreamClientTest() override {
    if (server_ != nullptr) calls_.Stop(*server_, std::chrono::milliseconds(0));
  }
  // Starts a gateway that sends `messages` and stays connected.
  void Start(std::vector<grpc::ByteBuffer> messages) {
    calls_.AddMethod(kSessionMethod, [this, messages = std::move(messages)](ServerCall& call) {
      grpc::ByteBuffer message;
      call.Read(message);
      for (const grpc::ByteBuffer& sent : messages) call.Write(sent);
      while (call.Read(message)) {
        ClientFrame frame;
        if (Parse(message, frame) && frame.head.waits() != 0) asked_.set_value(frame.head.waits());
      }
      return grpc::Status::OK;
    });
    server_ = builder_.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    EXPECT_TRUE(calls_.Start().ok());
  }
  // Opens device 0 as the library, while the connector runs. Returns its transport.
  std::unique_ptr<transport::ShmClient> Library() {
    transport::Welcome welcome;
    EXPECT_TRUE(
        transport::ReceiveMessage(library_.get(), std::as_writable_bytes(std::span(&welcome, 1))).ok());
    const auto socket = std::make_shared<transport::SessionSocket>(std::move(library_));
    auto fds = socket->OpenDevice(0);
    EXPECT_TRUE(fds.ok()) << fds.status();
    return std::move(*transport::ShmClient::Create(socket, *std::move(fds), welcome.staging_bytes,
                                                   transport::ShmClient::Waits::kForRelay));
  }
  absl::StatusOr<std::unique_ptr<Connector>> Connect() {
    const transport::Hello hello = {transport::kHelloMagic, wire::kOldestVersion, wire::kNewestVersion, {}};
    return Connector::Connect({"127.0.0.1:" + std::to_string(port_), kTimeout}, hello, std::move(connector_));
  }

  int port_ = 0;
  std::promise<uint64_t> asked_;  // set by the gateway
  UniqueFd library_, connector_;
  grpc::ServerBuilder builder_;
  CallServer calls_;
  std::unique_ptr<grpc::Server> server_;
};

grpc::ByteBuffer Welcome() {
  transport::Welcome welcome = {};
  welcome.magic = transport::kHelloMagic;
  welcome.version = wire::kNewestVersion;
  welcome.device_count = 2;
  welcome.ring_bytes = transport::kRingBytes;
  welcome.staging_bytes = transport::kStagingBytes;
  welcome.rows = ops::KnownRows();
  ServerFrame frame;
  frame.head.set_welcome(&welcome, sizeof(welcome));
  return Serialize(frame);
}

grpc::ByteBuffer Garbage() {
  grpc::Slice slice(std::string("\xff\xff\xff no frame"));
  return {&slice, 1};
}

grpc::ByteBuffer FrameOfNumber(uint64_t number) {
  ServerFrame frame;
  frame.head.set_number(number);
  return Serialize(frame);
}

// The library stays connected, so that only the message can end the session.
TEST_F(StreamClientTest, AnInvalidFrameEndsTheSession) {
  Start({Welcome(), Garbage()});
  auto client = Connect();
  ASSERT_TRUE(client.ok()) << client.status();
  (*client)->Run(UniqueFd());
}

TEST_F(StreamClientTest, AFrameThatIsMissingEndsTheSession) {
  Start({Welcome(), FrameOfNumber(2)});
  auto client = Connect();
  ASSERT_TRUE(client.ok()) << client.status();
  (*client)->Run(UniqueFd());
}

// The sending thread sleeps by then, since nothing was sent for a while.
TEST_F(StreamClientTest, ARequestWithoutCommandsIsForwarded) {
  Start({Welcome()});
  auto client = Connect();
  ASSERT_TRUE(client.ok()) << client.status();
  std::thread runs([&] { (*client)->Run(UniqueFd()); });
  std::unique_ptr<transport::ShmClient> library = Library();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const uint64_t question = transport::WaitsFor({0, 1});
  library->RequestAnswer(question);
  std::future<uint64_t> asked = asked_.get_future();
  const bool passed_on = asked.wait_for(kTimeout) == std::future_status::ready;
  library.reset();
  runs.join();
  ASSERT_TRUE(passed_on);
  EXPECT_EQ(asked.get(), question);
}

// The gateway of these tests answers each stream alike; a session has two devices here.
TEST_F(StreamClientTest, EachDeviceOpensOnceOnAStreamOfItsOwn) {
  Start({Welcome()});
  auto client = Connect();
  ASSERT_TRUE(client.ok()) << client.status();
  std::thread runs([&] { (*client)->Run(UniqueFd()); });
  transport::Welcome welcome;
  ASSERT_TRUE(transport::ReceiveMessage(library_.get(), std::as_writable_bytes(std::span(&welcome, 1))).ok());
  {
    const transport::SessionSocket socket(std::move(library_));
    EXPECT_TRUE(socket.OpenDevice(1).ok());
    EXPECT_TRUE(socket.OpenDevice(0).ok());
    EXPECT_EQ(socket.OpenDevice(1).status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(socket.OpenDevice(2).status().code(), absl::StatusCode::kInvalidArgument);
  }
  runs.join();
}

TEST_F(StreamClientTest, AGreetingThatIsNoFrameIsAnError) {
  Start({Garbage()});
  const auto client = Connect();
  EXPECT_FALSE(client.ok());
}

TEST_F(StreamClientTest, AWelcomeOfAnotherVersionIsAnError) {
  Start({FrameOfNumber(0)});
  const auto client = Connect();
  EXPECT_EQ(client.status().message(), "the gateway does not support this version of xpud's protocol");
}

}  // namespace
}  // namespace xpud::remote
