#include "proto/remote/call_server.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/remote/client_call.h"

namespace xpud::remote {
namespace {

grpc::ByteBuffer Bytes(const std::string& text) {
  grpc::Slice slice(text);
  return {&slice, 1};
}

std::string Text(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(bytes.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& slice : slices) text.append(slice.begin(), slice.end());
  return text;
}

class Client {
 public:
  Client(const std::shared_ptr<grpc::Channel>& channel, const std::string& method)
      : call_(thread_.loop(), channel, method, {}) {}
  ~Client() {
    call_.Cancel();
    if (!finished_) Finish();
  }
  bool Write(const std::string& text) { return call_.Write(Bytes(text)); }
  void WritesDone() { call_.WritesDone(); }
  // Returns "" after the last message.
  std::string Read() {
    grpc::ByteBuffer message;
    return call_.Read(message) ? Text(message) : "";
  }
  grpc::Status Finish() {
    finished_ = true;
    return call_.Finish();
  }
  void Cancel() { call_.Cancel(); }

 private:
  EventThread thread_{"client"};
  ClientCall call_;
  bool finished_ = false;
};

class CallServerTest : public testing::Test {
 protected:
  explicit CallServerTest(int calls = 8)
      : calls_(builder_, calls, [this](std::function<void()> body) {
          return has_threads_ && CallServer::StartDetached(std::move(body));
        }) {
    builder_.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  }
  ~CallServerTest() override {
    if (server_ != nullptr) calls_.Stop(*server_, std::chrono::milliseconds(0));
  }
  void Start() {
    server_ = builder_.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    EXPECT_TRUE(calls_.Start().ok());
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(port_), grpc::InsecureChannelCredentials());
  }

  int port_ = 0;
  std::atomic<bool> has_threads_{true};
  grpc::ServerBuilder builder_;
  CallServer calls_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

grpc::Status EchoAll(ServerCall& call) {
  for (grpc::ByteBuffer message; call.Read(message);) call.Write(message);
  return {grpc::DATA_LOSS, "over"};
}

void ExpectEcho(Client& client, const std::string& text) {
  ASSERT_TRUE(client.Write(text));
  EXPECT_EQ(client.Read(), text);
}

TEST_F(CallServerTest, CallsWithoutAThreadAreRefusedAndTheOthersGoOn) {
  calls_.AddMethod("/a/Echo", EchoAll);
  Start();
  Client open(channel_, "/a/Echo");
  ExpectEcho(open, "before");
  has_threads_ = false;
  for (int i = 0; i < 20; ++i) {  // more than the limit of concurrent calls
    Client refused(channel_, "/a/Echo");
    EXPECT_EQ(refused.Read(), "");
    EXPECT_EQ(refused.Finish().error_code(), grpc::RESOURCE_EXHAUSTED);
  }
  ExpectEcho(open, "meanwhile");
  has_threads_ = true;
  Client next(channel_, "/a/Echo");
  ExpectEcho(next, "after");
}

TEST_F(CallServerTest, ACallMayBeCancelledWhileItIsRefused) {
  calls_.AddMethod("/a/Echo", EchoAll);
  Start();
  has_threads_ = false;
  for (int i = 0; i < 200; ++i) {
    Client refused(channel_, "/a/Echo");
    if (i % 2 == 0) refused.Write("x");
    refused.Cancel();
    EXPECT_FALSE(refused.Finish().ok());
  }
  has_threads_ = true;
  Client next(channel_, "/a/Echo");
  ExpectEcho(next, "after");
}

TEST_F(CallServerTest, HandsWhatArrivesToTheMethodsHandler) {
  calls_.AddMethod("/a/Echo", EchoAll);
  Start();
  Client client(channel_, "/a/Echo");
  for (const std::string text : {"one", "two", "three"}) ExpectEcho(client, text);
  client.WritesDone();
  EXPECT_EQ(client.Read(), "");
  const grpc::Status status = client.Finish();
  EXPECT_EQ(status.error_code(), grpc::DATA_LOSS);
  EXPECT_EQ(status.error_message(), "over");
}

// Messages arrive in order and complete, in both directions at once.
TEST_F(CallServerTest, LongMessagesPassWhileOthersDo) {
  calls_.AddMethod("/a/Echo", EchoAll);
  Start();
  Client bulk(channel_, "/a/Echo"), small(channel_, "/a/Echo");
  for (int i = 0; i < 20; ++i) {
    const std::string text(1 << 20, static_cast<char>('a' + i));
    ASSERT_TRUE(bulk.Write(text));
    ExpectEcho(small, std::to_string(i));
    EXPECT_EQ(bulk.Read(), text);
  }
}

TEST_F(CallServerTest, HasTheMetadataOfTheClient) {
  calls_.AddMethod("/a/Key", [](ServerCall& call) {
    const auto& metadata = call.context().client_metadata();
    const auto found = metadata.find("key");
    if (found != metadata.end()) call.Write(Bytes({found->second.data(), found->second.size()}));
    return grpc::Status::OK;
  });
  Start();
  EventThread thread("client");
  ClientCall call(thread.loop(), channel_, "/a/Key", {{"key", "value"}});
  grpc::ByteBuffer message;
  ASSERT_TRUE(call.Read(message));
  EXPECT_EQ(Text(message), "value");
  EXPECT_TRUE(call.Finish().ok());
}

// Most writes complete at once; the others wait for gRPC's own work on the connection.
TEST_F(CallServerTest, AWriteThatIsDoneAtOnceNeedsNoOtherThread) {
  constexpr int kWrites = 100;
  calls_.AddMethod("/a/Echo", EchoAll);
  Start();
  grpc::CompletionQueue queue;
  EventLoop loop(queue);  // no thread runs it
  grpc::ClientContext context;
  grpc::GenericStub stub(channel_);
  const auto stream = stub.PrepareCall(&context, "/a/Echo", &queue);
  int done = 0, here = 0;
  Event event = {[&](bool) { ++done; }};
  const auto finish = [&](int count) {
    void* tag;
    for (bool ok; done < count && queue.Next(&tag, &ok);) static_cast<Event*>(tag)->happened(ok);
  };
  stream->StartCall(&event);
  finish(1);
  for (int i = 0; i < kWrites; ++i) {
    loop.Start([&] { stream->Write(Bytes("x"), &event); });
    here += done - i - 1;
    finish(i + 2);
  }
  EXPECT_GT(here, kWrites / 2);
  context.TryCancel();
  grpc::Status status;
  stream->Finish(&status, &event);
  finish(kWrites + 2);
  queue.Shutdown();
  loop.Run();
}

TEST_F(CallServerTest, SaysWhichMethodItDoesNotHave) {
  calls_.AddMethod("/a/Echo", EchoAll);
  Start();
  const grpc::Status status = Client(channel_, "/a/Other").Finish();
  EXPECT_EQ(status.error_code(), grpc::UNIMPLEMENTED);
  EXPECT_EQ(status.error_message(), "there is no method /a/Other");
}

TEST_F(CallServerTest, ReadsOnOnlyWhenTheTakerWantsMore) {
  std::atomic<int> taken{0}, more{0};
  calls_.AddMethod("/a/Count", [&](ServerCall& call) {
    std::atomic<bool> over{false};
    call.SetTaker([&](const grpc::ByteBuffer* message) {
      if (message == nullptr) over.store(true);
      return message != nullptr && ++taken % 2 == 0;
    });
    while (!over.load()) {
      call.ReadOn();
      call.AwaitReadEnd();
      if (over.load()) break;
      call.Write(Bytes(std::to_string(taken.load())));
      while (more.load() < taken.load() && !call.IsCancelled()) std::this_thread::yield();
    }
    return grpc::Status::OK;
  });
  Start();
  Client client(channel_, "/a/Count");
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(client.Write("x"));
  EXPECT_EQ(client.Read(), "1");
  EXPECT_EQ(taken.load(), 1);
  more.store(1);
  EXPECT_EQ(client.Read(), "3");  // the taker of the second message read on
  EXPECT_EQ(taken.load(), 3);
  more.store(3);
  EXPECT_EQ(client.Read(), "5");
  more.store(5);
  client.WritesDone();
  EXPECT_EQ(client.Read(), "");
  EXPECT_TRUE(client.Finish().ok());
}

TEST_F(CallServerTest, KnowsThatACallWasCancelledAlsoWhileNothingIsRead) {
  std::atomic<bool> known{false};
  calls_.AddMethod("/a/Wait", [&](ServerCall& call) {
    call.Write(Bytes("here"));
    while (!call.IsCancelled()) std::this_thread::yield();
    known.store(true);
    EXPECT_TRUE(call.Write(Bytes("lost")));  // starts, then fails
    EXPECT_FALSE(call.Write(Bytes("refused")));
    return grpc::Status::OK;
  });
  Start();
  {
    Client client(channel_, "/a/Wait");
    EXPECT_EQ(client.Read(), "here");
    client.Cancel();
    EXPECT_EQ(client.Finish().error_code(), grpc::CANCELLED);
  }
  while (!known.load()) std::this_thread::yield();
}

TEST_F(CallServerTest, AClientThatTakesNothingIsSeenOff) {
  std::atomic<bool> written{false};
  calls_.AddMethod("/a/Flood", [&](ServerCall& call) {
    call.Write(Bytes(std::string(64 << 20, 'x')));  // more than the connection buffers
    written.store(true);
    return grpc::Status::OK;
  });
  Start();
  Client client(channel_, "/a/Flood");
  while (!written.load()) std::this_thread::yield();
  calls_.Stop(*server_, std::chrono::hours(1));  // the call ends by itself
  client.Cancel();
}

class OneCallServerTest : public CallServerTest {
 protected:
  OneCallServerTest() : CallServerTest(1) {}
};

TEST_F(OneCallServerTest, FurtherCallsWait) {
  calls_.AddMethod("/a/Echo", EchoAll);
  Start();
  Client first(channel_, "/a/Echo");
  ExpectEcho(first, "first");
  Client second(channel_, "/a/Echo");
  ASSERT_TRUE(second.Write("second"));
  first.WritesDone();
  EXPECT_EQ(first.Finish().error_code(), grpc::DATA_LOSS);
  EXPECT_EQ(second.Read(), "second");
}

TEST_F(CallServerTest, StopEndsCallsThatGoOn) {
  calls_.AddMethod("/a/Echo", EchoAll);
  Start();
  Client client(channel_, "/a/Echo");
  ExpectEcho(client, "one");
  calls_.Stop(*server_, std::chrono::milliseconds(20));
  EXPECT_FALSE(client.Finish().ok());
}

}  // namespace
}  // namespace xpud::remote
