// The agent's socket without a daemon: connections and calls that come and go on many threads.
#include "deploy/agent/grants/door.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "deploy/agent/grants/grants.grpc.pb.h"
#include "deploy/agent/grants/grants.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/unix_address.h"

namespace xpud::agent {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
namespace messages = xpud::grants::v1;

class AgentDoor : public ::testing::Test {
 protected:
  AgentDoor() {
    char pattern[] = "/tmp/xpud-door-XXXXXX";
    folder_ = mkdtemp(pattern);
    Start();
  }
  ~AgentDoor() override {
    grants_.reset();
    std::filesystem::remove_all(folder_);
  }
  void Start() {
    auto started = Grants::Start(keeper_, socket(), {});
    ASSERT_TRUE(started.ok()) << started.status();
    grants_ = *std::move(started);
  }
  std::string socket() const { return folder_ + "/agent.sock"; }

  std::unique_ptr<messages::Grants::Stub> Connect() const {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_un address = *UnixAddress(socket());
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return messages::Grants::NewStub(grpc::CreateInsecureChannelFromFd("agent", fd));
  }
  static grpc::Status Return(messages::Grants::Stub& stub, const std::string& grant) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 20s);
    messages::ReturnRequest request;
    request.set_grant(grant);
    messages::ReturnResponse response;
    return stub.Return(&context, request, &response);
  }

  std::string folder_;
  Counters counters_;
  DaemonLink link_{"/nonexistent/xpud.sock"};
  ClaimKeeper keeper_{link_, counters_};
  std::unique_ptr<Grants> grants_;
};

TEST_F(AgentDoor, AnswersOnManyConnectionsAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const auto stub = Connect();
      for (int call = 0; call < 50; ++call)
        EXPECT_EQ(Return(*stub, "not-a-grant").error_code(), grpc::INVALID_ARGUMENT);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counters_.Read().refusals.at({"grants", "INVALID_ARGUMENT"}), 400u);
}

TEST_F(AgentDoor, SaysThatTheDaemonIsAway) {
  const auto stub =
      messages::Grants::NewStub(grpc::CreateChannel("unix:" + socket(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  messages::ListResponse response;
  EXPECT_EQ(stub->List(&context, {}, &response).error_code(), grpc::UNAVAILABLE);
}

TEST_F(AgentDoor, SurvivesCallersThatHangUp) {
  for (int i = 0; i < 60; ++i) {
    const auto stub = Connect();
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    messages::ReturnResponse response;
    grpc::Status status;
    auto call = stub->AsyncReturn(&context, {}, &queue);
    call->Finish(&response, &status, nullptr);
    if (i % 2 == 0) std::this_thread::sleep_for(500us);
    context.TryCancel();
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
  }
  // gRPC closes the clients' ends a little later; until then the user has as many connections as it may.
  grpc::Status status;
  for (int i = 0; i < 100 && status.error_code() != grpc::INVALID_ARGUMENT; ++i) {
    std::this_thread::sleep_for(20ms);
    status = Return(*Connect(), "x");
  }
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT) << status.error_message();
}

TEST_F(AgentDoor, EndsWhileCallsAreInFlight) {
  for (int round = 0; round < 5; ++round) {
    std::atomic<bool> ends{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, stub = Connect()] {
        while (!ends.load()) (void)Return(*stub, "x");
      });
    }
    std::this_thread::sleep_for(20ms);
    grants_.reset();
    ends.store(true);
    for (std::thread& thread : threads) thread.join();
    Start();
  }
}

TEST_F(AgentDoor, TakesNoPlaceThatIsNotItsOwn) {
  grants_.reset();
  EXPECT_FALSE(std::filesystem::exists(socket()));
  std::ofstream(socket()) << "a file";
  EXPECT_THAT(std::string(Grants::Start(keeper_, socket(), {}).status().message()),
              HasSubstr("is not a socket"));
  std::filesystem::remove(socket());
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  EXPECT_EQ(Grants::Start(keeper_, socket(), {}).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Grants::Start(keeper_, "/nonexistent/agent.sock", {}).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace xpud::agent
