// Tenants behind one gateway, and the control plane through it.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>

#include <fstream>
#include <future>

#include "proto/control/xpud.grpc.pb.h"
#include "proto/transport/handshake.h"
#include "sdk/client/connect.h"
#include "tests/e2e/remote_fixture.h"

namespace xpud::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Two tenants with a token each; one of them may use the control plane.
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
  // Sends an empty request to the gateway. Stores the answer in status_.
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
  EXPECT_THAT(std::string(Connect().status().message()), HasSubstr("all 3 places of this tenant"));
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

}  // namespace
}  // namespace xpud::e2e
