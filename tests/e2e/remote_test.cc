// Sessions over a network: a client, xpud-connect, xpud-gateway and a daemon, all real. What such a session
// computes is tested by the other suites with $XPUD_TEST_REMOTE (tools/test remote).
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <numeric>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/control/xpud.grpc.pb.h"
#include "proto/remote/remote.grpc.pb.h"
#include "proto/transport/handshake.h"
#include "sdk/client/connect.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/tcp_proxy.h"
#include "xpud/tensor.h"

namespace xpud::e2e {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr auto kSoon = milliseconds(5000);

class Remote : public ::testing::Test {
 protected:
  void Open(const std::vector<std::string>& arguments = {}) {
    gateway_ = std::make_unique<GatewayProcess>(daemon_.directory(), daemon_.socket(), arguments);
  }
  absl::StatusOr<std::unique_ptr<Session>> Connect() const { return ConnectTo(gateway_->address()); }
  static absl::StatusOr<std::unique_ptr<Session>> ConnectTo(const std::string& address) {
    ConnectOptions options;
    options.address = address;
    options.client_name = "remote";
    return Session::Connect(options);
  }
  static absl::StatusOr<std::vector<float>> TryDouble(Session& session, float value) {
    const auto tensor = Tensor::FromHost(session.DefaultQueue(0), std::span<const float>(&value, 1), {1});
    if (!tensor.ok()) return tensor.status();
    const auto doubled = Mul(*tensor, 2.0);
    return doubled.ok() ? doubled->ToFloats() : doubled.status();
  }
  static float Double(Session& session, float value) {
    const auto result = TryDouble(session, value);
    return result.ok() ? (*result)[0] : -1;
  }
  // Why the session has ended.
  static absl::Status End(Session& session, milliseconds limit) {
    absl::Status status;
    EXPECT_TRUE(Within(limit, [&] { return !(status = TryDouble(session, 1).status()).ok(); }));
    return status;
  }
  bool NothingIsLeft() const {
    return Within(kSoon, [&] {
      std::string sessions;
      return daemon_.StatusOf("memory_used_bytes") == 0 && daemon_.Ask("ps -o jsonl", sessions) == 0 &&
             sessions.find("client_name") == std::string::npos;
    });
  }
  // In a child, whose exit status it gives.
  static int InChild(const std::function<int()>& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body());
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  DaemonProcess daemon_;
  std::unique_ptr<GatewayProcess> gateway_;
};

TEST_F(Remote, MovesMoreThanStagingHoldsThereAndBack) {
  Open();
  const auto session = Connect();
  ASSERT_TRUE(session.ok()) << session.status();
  std::vector<float> values(5 << 20), back(values.size());  // 20 MiB
  std::iota(values.begin(), values.end(), 0.0f);
  const auto tensor = Tensor::FromHost((*session)->DefaultQueue(0), std::span<const float>(values),
                                       {static_cast<int64_t>(values.size())});
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  ASSERT_TRUE(Add(*tensor, *tensor)->ToHost(std::as_writable_bytes(std::span(back))).ok());
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(back[i], values[i] * 2) << i;
  std::string sessions;
  EXPECT_EQ(daemon_.Ask("ps", sessions), 0);
  EXPECT_THAT(sessions, HasSubstr("remote"));
}

TEST_F(Remote, ForkedChildrenConnectAnew) {
  Open();
  const auto session = Connect();
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(Double(**session, 4), 8);
  EXPECT_EQ(InChild([&] {
              const auto own = Connect();
              return own.ok() && Double(**own, 21) == 42 ? 7 : 1;
            }),
            7);
  EXPECT_EQ(Double(**session, 5), 10);
}

TEST_F(Remote, AWrongTokenIsRefusedAndSaysWhatToDo) {
  Open();
  const std::string wrong = daemon_.directory() + "/wrong";
  std::ofstream(wrong) << "another token";
  chmod(wrong.c_str(), 0600);
  for (const char* file : {wrong.c_str(), ""}) {
    setenv("XPUD_TOKEN_FILE", file, 1);
    const auto session = Connect();
    ASSERT_FALSE(session.ok());
    EXPECT_THAT(std::string(session.status().message()), HasSubstr("XPUD_TOKEN_FILE"));
  }
  chmod(gateway_->token_file().c_str(), 0644);
  setenv("XPUD_TOKEN_FILE", gateway_->token_file().c_str(), 1);
  EXPECT_THAT(std::string(Connect().status().message()), HasSubstr("nobody else may read"));
  EXPECT_EQ(daemon_.StatusOf("sessions_opened"), 0);
}

TEST_F(Remote, WhereNobodyListensItSaysSoAtOnce) {
  const auto start = Clock::now();
  const auto session = ConnectTo("127.0.0.1:1");
  ASSERT_FALSE(session.ok());
  EXPECT_THAT(std::string(session.status().message()), HasSubstr("127.0.0.1:1"));
  EXPECT_LT(Clock::now() - start, kSoon);
}

TEST_F(Remote, AGatewayWithoutItsDaemonSaysSo) {
  Open();
  daemon_.Kill();
  EXPECT_THAT(std::string(Connect().status().message()), HasSubstr("no xpud daemon"));
}

TEST_F(Remote, ACutConnectionIsAnErrorAndLeavesNothing) {
  Open();
  auto session = Connect();
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(Double(**session, 4), 8);
  const auto buffer = (*session)->DefaultQueue(0).Allocate(1 << 20);
  ASSERT_TRUE((*session)->DefaultQueue(0).Synchronize().ok());
  EXPECT_GT(daemon_.StatusOf("memory_used_bytes"), 0);
  gateway_->Kill();
  const absl::Status status = End(**session, kSoon);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the connection to 127.0.0.1"));
  EXPECT_TRUE(NothingIsLeft());
}

TEST_F(Remote, ASilentConnectionIsFoundToBeLost) {
  if (std::getenv("XPUD_TEST_FULL") == nullptr) GTEST_SKIP() << "takes 15 s: tools/test --full";
  Open();
  auto session = Connect();
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(Double(**session, 4), 8);
  kill(gateway_->pid(), SIGSTOP);
  const auto start = Clock::now();
  EXPECT_THAT(std::string(End(**session, milliseconds(25'000)).message()), HasSubstr("was lost"));
  EXPECT_LT(Clock::now() - start, milliseconds(25'000));
}

TEST_F(Remote, TheDaemonsEndIsTold) {
  Open();
  auto session = Connect();
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(Double(**session, 4), 8);
  daemon_.Kill(SIGTERM);
  EXPECT_THAT(std::string(End(**session, kSoon).message()), HasSubstr("the xpud daemon is ending"));
}

TEST_F(Remote, AKilledClientLeavesNothing) {
  Open();
  EXPECT_EQ(InChild([&] {
              const auto session = Connect();
              const auto buffer = (*session)->DefaultQueue(0).Allocate(1 << 20);
              if (!(*session)->DefaultQueue(0).Synchronize().ok()) return 1;
              kill(getpid(), SIGKILL);
              return 1;
            }),
            -1);
  EXPECT_TRUE(NothingIsLeft());
}

// A stream of our own, which says what no client would.
class Hostile : public Remote {
 protected:
  using Message = v1::ClientFrame;

  grpc::Status Say(const std::vector<Message>& messages) {
    const auto channel = grpc::CreateChannel(gateway_->address(), grpc::InsecureChannelCredentials());
    const auto stub = v1::Remote::NewStub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kSoon);
    context.AddMetadata("authorization", "Bearer " + Token());
    const auto stream = stub->Session(&context);
    for (const Message& message : messages) stream->Write(message);
    if (messages.size() == 1 && messages[0].head().resumable()) {
      v1::ServerFrame welcome;
      if (stream->Read(&welcome)) key_ = welcome.head().key();
      context.TryCancel();
    } else if (!messages.empty() && messages.back().head().ends()) {
      stream->WritesDone();
    }
    v1::ServerFrame answer;
    while (stream->Read(&answer)) {
      closed_ += answer.head().closed();
      if (!answer.head().key().empty()) key_ = answer.head().key();
    }
    return stream->Finish();
  }
  grpc::Status SayBytes(const std::string& bytes) {
    grpc::GenericStub stub(grpc::CreateChannel(gateway_->address(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kSoon);
    context.AddMetadata("authorization", "Bearer " + Token());
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> answered;
    stub.UnaryCall(&context, "/xpud.v1.Remote/Session", grpc::StubOptions(), &request, &response,
                   [&](const grpc::Status& status) { answered.set_value(status); });
    return answered.get_future().get();
  }
  std::string Token() const {
    std::ifstream file(gateway_->token_file());
    std::string token;
    std::getline(file, token);
    return token;
  }
  static Message Greeting() {
    const transport::Hello hello = {transport::kHelloMagic, wire::kOldestVersion, wire::kNewestVersion, "x"};
    Message message;
    message.mutable_head()->set_hello(&hello, sizeof(hello));
    return message;
  }
  static Message Commands(const std::string& bytes) {
    Message message;
    message.mutable_head()->set_number(1);
    message.mutable_head()->set_command_bytes(bytes.size());
    message.set_payload(bytes);
    return message;
  }
  std::string closed_, key_;
};

TEST_F(Hostile, WhatIsNoSessionIsRefusedAndNobodyElseNotices) {
  Open();
  const auto innocent = Connect();
  ASSERT_TRUE(innocent.ok()) << innocent.status();
  Message outside, cut_off, gap, ahead, too_much = Commands("12345678");
  outside.mutable_head()->add_staging()->set_offset(~uint64_t{0} - 3);
  outside.mutable_head()->mutable_staging(0)->set_bytes(8);
  outside.set_payload("12345678");
  cut_off.mutable_head()->add_staging()->set_bytes(9);
  cut_off.set_payload("12345678");
  gap.mutable_head()->set_number(3);
  ahead.mutable_head()->set_received(1000);
  too_much.mutable_head()->set_command_bytes(9);
  Message twice = Commands("");
  EXPECT_EQ(Say({Greeting(), twice, twice}).error_code(), grpc::INVALID_ARGUMENT);
  Message old = Greeting();
  std::string& hello = *old.mutable_head()->mutable_hello();
  hello[4] = 1, hello[6] = 1;
  EXPECT_EQ(Say({Message()}).error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(Say({Commands("12345678")}).error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(Say({old}).error_code(), grpc::FAILED_PRECONDITION);
  for (const Message& message :
       {Commands("123"), Commands(std::string(8, '\0')), Commands(std::string("\xff\xff\xff\xff\0\0\0\0", 8)),
        Commands(std::string("\x10\0\0\0\x01\0\0\0", 8)), outside, cut_off, gap, ahead, too_much})
    EXPECT_EQ(Say({Greeting(), message}).error_code(), grpc::INVALID_ARGUMENT);
  // Each asks for all of staging to be sent back.
  wire::DownloadCommand all = {{sizeof(all), wire::CommandKind::kDownload, 0, 0}, {}, 0, {}, 4 << 20};
  const std::string one(reinterpret_cast<const char*>(&all), sizeof(all));
  EXPECT_EQ(Say({Greeting(), Commands(one + one)}).error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(Say({Greeting(), Commands(std::string("\x08\0\0\0\x7f\0\0\0", 8))}).error_code(),
            grpc::CANCELLED);
  EXPECT_THAT(closed_, HasSubstr("a command of unknown kind"));
  EXPECT_EQ(Double(**innocent, 8), 16);
  EXPECT_TRUE(Within(kSoon, [&] {
    std::string sessions;
    return daemon_.Ask("ps -o json", sessions) == 0 && sessions.find("\"x\"") == std::string::npos;
  }));
}

// What is not a frame: gRPC's own messages go as they are.
TEST_F(Hostile, BytesThatAreNoFrameEndOnlyTheirStream) {
  Open();
  const auto innocent = Connect();
  ASSERT_TRUE(innocent.ok()) << innocent.status();
  for (const std::string& bytes :
       {std::string("\xff"), std::string("\x0a\xff\xff\xff\xff\x0f"), std::string("\x12\x01x"),
        std::string("\x0a\x01\xff"), std::string("\x0a\x00\x12\x05x", 5), std::string(100, '\x0a')}) {
    EXPECT_EQ(SayBytes(bytes).error_code(), grpc::INVALID_ARGUMENT);
  }
  EXPECT_EQ(Double(**innocent, 8), 16);
}

TEST_F(Hostile, AnotherTenantsSessionIsNotTakenUp) {
  const std::string file = daemon_.directory() + "/tokens";
  std::ofstream(file) << "team-a secret-a\nteam-b secret-b\n";
  chmod(file.c_str(), 0600);
  Open({"--token-file", file});
  Message resumable = Greeting(), resume;
  resumable.mutable_head()->set_resumable(true);
  std::ofstream(gateway_->token_file()) << "secret-a";
  Say({resumable});  // and is lost: it did not say that it ends
  ASSERT_FALSE(key_.empty());
  resume.mutable_head()->set_key(key_);
  std::ofstream(gateway_->token_file()) << "secret-b";
  EXPECT_EQ(Say({resume}).error_code(), grpc::NOT_FOUND);
  std::ofstream(gateway_->token_file()) << "secret-a";
  Message ends;
  ends.mutable_head()->set_ends(true);
  EXPECT_TRUE(Say({resume, ends}).ok());
  EXPECT_EQ(Say({resume}).error_code(), grpc::NOT_FOUND) << "it has ended";
}

TEST_F(Hostile, PlacesAreBounded) {
  Open({"--sessions", "2"});
  auto first = Connect(), second = Connect();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_THAT(std::string(Connect().status().message()), HasSubstr("all 2 places"));
  second->reset();
  EXPECT_TRUE(Within(kSoon, [&] { return Connect().ok(); }));
}

// A connection that is cut, and a client that wants to come back.
class Reconnecting : public Remote {
 protected:
  void OpenProxy(const std::vector<std::string>& arguments = {}) {
    Open(arguments);
    proxy_ = std::make_unique<TcpProxy>(gateway_->address());
  }
  absl::StatusOr<std::unique_ptr<Session>> ConnectFor(int seconds) const {
    ConnectOptions options;
    options.address = proxy_->address();
    options.reconnect = std::chrono::seconds(seconds);
    return Session::Connect(options);
  }
  std::unique_ptr<TcpProxy> proxy_;
};

TEST_F(Reconnecting, WorkGoesOnWhereItWasCut) {
  OpenProxy();
  const auto session = ConnectFor(20);
  ASSERT_TRUE(session.ok()) << session.status();
  std::vector<float> values(1 << 20), back(values.size());  // 4 MiB
  std::iota(values.begin(), values.end(), 0.0f);
  auto sum = Tensor::FromHost((*session)->DefaultQueue(0), std::span<const float>(values),
                              {static_cast<int64_t>(values.size())});
  ASSERT_TRUE(sum.ok()) << sum.status();
  std::atomic<bool> done{false};
  int cuts = 0;
  std::thread cutter([&] {
    for (; !done.load(); ++cuts) {
      const uint64_t before = proxy_->forwarded_bytes();
      while (!done.load() && proxy_->forwarded_bytes() < before + (3 << 20))
        std::this_thread::sleep_for(milliseconds(1));
      proxy_->Cut();
    }
  });
  // Each element is counted up once a round, whatever is lost and sent again.
  constexpr int kRounds = 40;
  for (int round = 0; round < kRounds; ++round) {
    const auto ones = Tensor::FromHost((*session)->DefaultQueue(0), std::vector<float>(values.size(), 1.0f),
                                       {static_cast<int64_t>(values.size())});
    ASSERT_TRUE(ones.ok()) << ones.status();
    sum = Add(*sum, *ones);
    ASSERT_TRUE(sum.ok()) << sum.status();
    if (round % 8 == 7) {
      ASSERT_TRUE(sum->ToHost(std::as_writable_bytes(std::span(back))).ok());
    }
  }
  const absl::Status read = sum->ToHost(std::as_writable_bytes(std::span(back)));
  done.store(true);
  cutter.join();
  ASSERT_TRUE(read.ok()) << read;
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(back[i], values[i] + kRounds) << i;
  EXPECT_GT(cuts, 5);
  EXPECT_EQ(daemon_.StatusOf("sessions_opened"), 1);
}

TEST_F(Reconnecting, ANetworkThatComesBackLateIsWaitedFor) {
  OpenProxy();
  const auto session = ConnectFor(30);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(Double(**session, 4), 8);
  proxy_->SetDown(true);
  proxy_->Cut();
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(1500));
    proxy_->SetDown(false);
  });
  EXPECT_EQ(Double(**session, 21), 42);
  later.join();
}

TEST_F(Reconnecting, ASessionThatNobodyComesBackToEnds) {
  OpenProxy({"--hold", "1"});
  const auto session = ConnectFor(4);
  ASSERT_TRUE(session.ok()) << session.status();
  const auto buffer = (*session)->DefaultQueue(0).Allocate(1 << 20);
  ASSERT_TRUE((*session)->DefaultQueue(0).Synchronize().ok());
  proxy_->SetDown(true);
  proxy_->Cut();
  EXPECT_TRUE(NothingIsLeft());
  EXPECT_THAT(gateway_->Log(), HasSubstr("session_forgotten"));
  proxy_->SetDown(false);
  EXPECT_THAT(std::string(End(**session, kSoon).message()), HasSubstr("no longer held"));
}

TEST_F(Reconnecting, WhereItCannotComeBackItSaysSo) {
  OpenProxy();
  const auto session = ConnectFor(1);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(Double(**session, 4), 8);
  proxy_->SetDown(true);
  proxy_->Cut();
  EXPECT_THAT(std::string(End(**session, kSoon).message()),
              AllOf(HasSubstr("was lost"), HasSubstr("tried to come back for 1 s")));
}

TEST_F(Reconnecting, AClientThatGoesLeavesNothing) {
  OpenProxy();
  {
    const auto session = ConnectFor(30);
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_EQ(Double(**session, 4), 8);
  }
  EXPECT_TRUE(NothingIsLeft());
  EXPECT_EQ(InChild([&] {
              const auto session = ConnectFor(30);
              if (!session.ok() || Double(**session, 4) != 8) return 1;
              kill(getpid(), SIGKILL);
              return 1;
            }),
            -1);
  EXPECT_TRUE(NothingIsLeft());
}

// Two tenants with a token each, one of whom may use the control plane.
class Tenants : public Remote {
 protected:
  void OpenWithTokens(std::vector<std::string> arguments = {}) {
    const std::string file = daemon_.directory() + "/tokens";
    WriteSecret(file, "# who may come\nteam-a secret-a\nops secret-o\n\nteam-b secret-b\n");
    arguments.insert(arguments.end(), {"--token-file", file, "--operators", "ops,root"});
    Open(arguments);
    for (const std::string name : {"a", "b", "o"})
      WriteSecret(daemon_.directory() + "/" + name, "secret-" + name);
  }
  static void WriteSecret(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
    chmod(path.c_str(), 0600);
  }
  void Be(const std::string& name) const {
    setenv("XPUD_TOKEN_FILE", (daemon_.directory() + "/" + name).c_str(), 1);
  }
  std::string List(const std::string& what) const {
    std::string list;
    EXPECT_EQ(daemon_.Ask(what, list), 0);
    return list;
  }
  // An empty request to the gateway; its answer is put in status_.
  grpc::Status Call(const std::string& token, const std::string& method = "/xpud.v1.Control/GetStatus") {
    grpc::TemplatedGenericStub<v1::GetStatusRequest, v1::GetStatusResponse> stub(
        grpc::CreateChannel(gateway_->address(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kSoon);
    context.AddMetadata("authorization", "Bearer " + token);
    const v1::GetStatusRequest request;
    std::promise<grpc::Status> answered;
    stub.UnaryCall(&context, method, grpc::StubOptions(), &request, &status_,
                   [&](const grpc::Status& status) { answered.set_value(status); });
    return answered.get_future().get();
  }
  static absl::Status Hold(Session& session, int mib) {
    const auto buffer = session.DefaultQueue(0).Allocate(static_cast<uint64_t>(mib) << 20);
    if (!buffer.ok()) return buffer.status();
    return session.DefaultQueue(0).Synchronize();
  }
  v1::GetStatusResponse status_;
};

TEST_F(Tenants, HaveQuotasOfTheirOwn) {
  OpenWithTokens();
  const std::string user = std::to_string(getuid());
  List("quota " + user + "/team-a 8MiB");
  Be("a");
  const auto a = Connect();
  Be("b");
  const auto b = Connect();
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  EXPECT_THAT(List("ps -o json"), AllOf(HasSubstr("\"uid:" + user + "/team-a\""), HasSubstr("/team-b\"")));
  EXPECT_EQ(Hold(**a, 9).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Hold(**a, 4).ok());
  EXPECT_TRUE(Hold(**b, 64).ok()) << "team-a's quota is not team-b's";
  EXPECT_THAT(List("quota"), HasSubstr("/team-a"));
  Be("o");
  WriteSecret(daemon_.directory() + "/o", "secret-c");
  EXPECT_FALSE(Connect().ok());
}

TEST_F(Tenants, NoneTakesAllPlaces) {
  OpenWithTokens({"--sessions", "4"});
  Be("a");
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < 3; ++i) sessions.push_back(*Connect());
  EXPECT_THAT(std::string(Connect().status().message()), HasSubstr("all 3 places of this tenant's"));
  Be("b");
  EXPECT_TRUE(Connect().ok());
}

TEST_F(Tenants, ATokenThatIsTakenOutOpensNothing) {
  OpenWithTokens();
  Be("b");
  const auto before = Connect();
  ASSERT_TRUE(before.ok()) << before.status();
  WriteSecret(daemon_.directory() + "/tokens", "team-a secret-a\n");
  EXPECT_THAT(std::string(Connect().status().message()), HasSubstr("XPUD_TOKEN_FILE"));
  EXPECT_EQ(Double(**before, 2), 4) << "who is in stays";
  WriteSecret(daemon_.directory() + "/tokens", "team-a two words\n");
  Be("a");
  EXPECT_THAT(std::string(Connect().status().message()), HasSubstr("cannot read its tokens"));
  EXPECT_THAT(gateway_->Log(), HasSubstr("line 1"));
}

TEST_F(Tenants, OnlyOperatorsUseTheControlPlane) {
  OpenWithTokens();
  Be("a");
  const auto session = Connect();
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(Call("secret-x").error_code(), grpc::UNAUTHENTICATED);
  EXPECT_EQ(Call("secret-a").error_code(), grpc::PERMISSION_DENIED);
  EXPECT_EQ(status_.sessions_size(), 0);
  const grpc::Status called = Call("secret-o");
  ASSERT_TRUE(called.ok()) << called.error_message();
  ASSERT_EQ(status_.sessions_size(), 1);
  EXPECT_EQ(status_.sessions(0).tenant_name(), "team-a");
  EXPECT_EQ(Call("secret-o", "/xpud.v1.Controls/GetStatus").error_code(), grpc::UNIMPLEMENTED);
  EXPECT_EQ(Call("secret-o", "/xpud.v1.Control/Nothing").error_code(), grpc::UNIMPLEMENTED);
  daemon_.Kill();
  EXPECT_THAT(Call("secret-o").error_message(), HasSubstr("no xpud daemon"));
}

TEST_F(Tenants, NobodyElseSpeaksForOthers) {
  if (getuid() != 0) GTEST_SKIP() << "root is needed to be somebody else";
  chmod(daemon_.directory().c_str(), 0755);
  chmod(daemon_.socket().c_str(), 0666);
  EXPECT_EQ(
      InChild([&] {
        if (setuid(65534) != 0) return 1;
        const auto socket = client::ConnectSocket(daemon_.socket());
        if (!socket.ok()) return 2;
        transport::Vouch vouch = {transport::kVouchMagic, 0, "root"};
        transport::Welcome welcome;
        if (!transport::SendMessage(socket->get(), std::as_bytes(std::span(&vouch, 1))).ok() ||
            !transport::ReceiveMessage(socket->get(), std::as_writable_bytes(std::span(&welcome, 1))).ok())
          return 3;
        return transport::GetText(welcome.text).find("may not speak for others") != std::string::npos ? 7 : 4;
      }),
      7);
}

class Tls : public Remote {
 protected:
  std::string Path(const std::string& name) const { return daemon_.directory() + "/" + name; }
  void Run(const std::string& command) const {
    ASSERT_EQ(std::system(
                  ("cd " + daemon_.directory() + " && umask 077 && " + command + " >/dev/null 2>&1").c_str()),
              0)
        << command;
  }
  void Authority(const std::string& name) const {
    Run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout " + name +
        ".key -out " + name + ".pem -days 2 -subj /CN=" + name);
  }
  void Certificate(const std::string& name, const std::string& authority) const {
    Run("openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout " + name + ".key -out " +
        name + ".csr -subj /CN=" + name);
    Run("printf 'subjectAltName=IP:127.0.0.1' > ext && openssl x509 -req -in " + name + ".csr -CA " +
        authority + ".pem -CAkey " + authority + ".key -CAcreateserial -days 2 -extfile ext -out " + name +
        ".pem");
  }
  void Show(const std::string& authority, const std::string& certificate) const {
    setenv("XPUD_TLS_CA", Path(authority + ".pem").c_str(), 1);
    setenv("XPUD_TLS_CERT", certificate.empty() ? "" : Path(certificate + ".pem").c_str(), 1);
    setenv("XPUD_TLS_KEY", certificate.empty() ? "" : Path(certificate + ".key").c_str(), 1);
  }
  ~Tls() override {
    for (const char* name : {"XPUD_TLS_CA", "XPUD_TLS_CERT", "XPUD_TLS_KEY"}) unsetenv(name);
  }
};

TEST_F(Tls, ClientsWithoutTheRightCertificateAreRefused) {
  Authority("ours");
  Authority("theirs");
  Certificate("gateway", "ours");
  Certificate("client", "ours");
  Certificate("stranger", "theirs");
  Open({"--tls-cert", Path("gateway.pem"), "--tls-key", Path("gateway.key"), "--tls-client-ca",
        Path("ours.pem")});
  Show("ours", "client");
  const auto session = Connect();
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(Double(**session, 3), 6);
  std::string sessions;
  EXPECT_EQ(daemon_.Ask("ps -o json", sessions), 0);
  EXPECT_THAT(sessions, HasSubstr("/client\"")) << "its certificate's common name is its tenant's";
  Show("ours", "stranger");
  EXPECT_FALSE(Connect().ok());
  Show("ours", "");
  EXPECT_FALSE(Connect().ok());
  Show("theirs", "client");  // is not whom the client knows
  EXPECT_FALSE(Connect().ok());
  unsetenv("XPUD_TLS_CA");
  unsetenv("XPUD_TLS_CERT");
  unsetenv("XPUD_TLS_KEY");
  EXPECT_FALSE(Connect().ok()) << "without TLS";
}

}  // namespace
}  // namespace xpud::e2e
