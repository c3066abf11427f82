// Features that only remote sessions have. With $XPUD_TEST_REMOTE other suites test their results (tools/test
// remote).
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <future>
#include <numeric>

#include "proto/base/unique_fd.h"
#include "proto/base/unix_address.h"
#include "proto/remote/remote.grpc.pb.h"
#include "proto/transport/handshake.h"
#include "tests/e2e/remote_fixture.h"

namespace xpud::e2e {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

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
  EXPECT_THAT(std::string(Connect().status().message()), HasSubstr("no other user can read"));
  EXPECT_EQ(daemon_.StatusOf("sessions_opened"), 0);
}

TEST_F(Remote, ASessionLowersItself) {
  Open();
  const auto session = Connect();
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE((*session)->SetNice(5).ok());
  EXPECT_THAT((*session)->SetNice(4).message(), HasSubstr("nice 4 would raise the session, whose nice is 5"));
  std::string sessions;
  EXPECT_EQ(daemon_.Ask("ps -o jsonl", sessions), 0);
  EXPECT_THAT(sessions, HasSubstr("\"nice\":5"));
  EXPECT_EQ(Double(**session, 3), 6);
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
  SignalProcess(gateway_->pid(), SIGSTOP);
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
              raise(SIGKILL);
              return 1;
            }),
            -1);
  EXPECT_TRUE(NothingIsLeft());
}

// A client that breaks the protocol on a stream of its own.
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
  // Each command asks for all of staging to be sent back.
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

// Bytes that are not a frame, sent as gRPC messages.
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
  Say({resumable});  // the stream is lost: it did not announce its end
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
  static std::string Scrape(const std::string& path) {
    const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM, 0));
    const sockaddr_un address = *UnixAddress(path);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    constexpr std::string_view kRequest = "GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n";
    EXPECT_EQ(send(fd.get(), kRequest.data(), kRequest.size(), 0), static_cast<ssize_t>(kRequest.size()));
    std::string answer;
    char bytes[4096];
    for (ssize_t n; (n = recv(fd.get(), bytes, sizeof(bytes), 0)) > 0;)
      answer.append(bytes, static_cast<size_t>(n));
    return answer;
  }
  bool Logs(const std::string& says) const {
    return Within(kSoon, [&] { return gateway_->Log().find(says) != std::string::npos; });
  }
  ~Tls() override {
    for (const char* name : {"XPUD_TLS_CA", "XPUD_TLS_CERT", "XPUD_TLS_KEY"}) unsetenv(name);
  }
};

// SIGHUP once ended the gateway, with success, so that nothing started it again.
TEST_F(Tls, CertificatesAndTokensAreReadAgainAndSessionsGoOn) {
  Authority("ours");
  Authority("next");
  Certificate("first", "ours");
  Certificate("second", "next");
  const auto install = [&](const std::string& certificate, const std::string& key) {
    Run("cp " + certificate + ".pem gateway.pem && cp " + key + ".key gateway.key");
  };
  const auto reload = [&](const std::string& says) {
    const size_t before = gateway_->Log().size();
    SignalProcess(gateway_->pid(), SIGHUP);
    EXPECT_TRUE(Within(kSoon, [&] { return gateway_->Log().find(says, before) != std::string::npos; }))
        << gateway_->Log();
  };
  install("first", "first");
  Open({"--tls-cert", Path("gateway.pem"), "--tls-key", Path("gateway.key")});
  EXPECT_TRUE(Logs("warning certificate_expires_soon path=" + Path("gateway.pem"))) << "in two days";
  Show("ours", "");
  const auto session = Connect();
  ASSERT_TRUE(session.ok()) << session.status();
  install("second", "first");
  reload("reload_refused error=\"the key in " + Path("gateway.key") + " is not that of the certificate");
  EXPECT_TRUE(Connect().ok()) << "the earlier certificate is in force";
  install("second", "second");
  reload("info reloaded");
  Show("next", "");
  EXPECT_TRUE(Within(2 * kSoon, [&] { return Connect().ok(); })) << gateway_->Log();
  Show("ours", "");
  EXPECT_FALSE(Connect().ok());
  EXPECT_EQ(Double(**session, 3), 6) << "it began with the earlier certificate";
  std::ofstream(gateway_->token_file()) << "";
  reload("reload_refused error=\"" + gateway_->token_file());
}

TEST_F(Tls, AnExpiredCertificateIsNamedInTheLog) {
  Authority("ours");
  Certificate("gateway", "ours");
  Run("openssl x509 -req -in gateway.csr -CA ours.pem -CAkey ours.key -CAcreateserial -days -1 -out "
      "gateway.pem");
  Open({"--tls-cert", Path("gateway.pem"), "--tls-key", Path("gateway.key"), "--metrics-listen",
        "unix:" + Path("metrics.sock")});
  EXPECT_TRUE(Logs("error certificate_expired path=" + Path("gateway.pem"))) << gateway_->Log();
  Run("(date -d \"$(openssl x509 -noout -enddate -in gateway.pem | cut -d= -f2)\" +%s > end)");
  std::string end;
  std::ifstream(Path("end")) >> end;
  EXPECT_THAT(Scrape(Path("metrics.sock")),
              HasSubstr("\nxpud_gateway_certificate_end_timestamp_seconds{path=\"" + Path("gateway.pem") +
                        "\"} " + end + "\n"));
}

TEST_F(Remote, AGatewayServesAgainAfterItsDaemonWasRestarted) {
  Open();
  const auto session = Connect();
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(Double(**session, 3), 6);
  daemon_.Kill(SIGTERM);
  EXPECT_FALSE(End(**session, 4 * kSoon).ok());
  EXPECT_FALSE(Connect().ok());
  daemon_.Restart();
  const auto next = Connect();
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(Double(**next, 4), 8);
  EXPECT_GE(StatusOf(gateway_->address(), "uptime_ns"), 0) << "the control plane";
}

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
  Show("theirs", "client");  // not signed by the client's authority
  EXPECT_FALSE(Connect().ok());
  unsetenv("XPUD_TLS_CA");
  unsetenv("XPUD_TLS_CERT");
  unsetenv("XPUD_TLS_KEY");
  EXPECT_FALSE(Connect().ok()) << "without TLS";
}

}  // namespace
}  // namespace xpud::e2e
