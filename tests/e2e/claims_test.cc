// Who has a claim: users at the ordinary socket, at doors of their own, and tenants of a gateway; and what
// they see of it. Several users work beside each other.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sdk/client/connect.h"
#include "sdk/control/client.h"
#include "tests/e2e/as_user.h"
#include "tests/e2e/daemon_process.h"
#include "xpud/tensor.h"

namespace xpud::e2e {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kUser = 61'001, kDoorUser = 61'002;

class ClaimUsers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can be several users";
    if (std::getenv("XPUD_TEST_REMOTE") != nullptr) GTEST_SKIP() << "users of this machine";
    daemon_ = std::make_unique<DaemonProcess>(
        std::vector<std::string>{"--socket-mode", "0666", "--test-devices", "2"});
    ASSERT_EQ(chmod(daemon_->directory().c_str(), 0711), 0);
  }

  static v1::Claim Claim(const std::string& key) {
    v1::Claim claim;
    claim.set_key(key);
    return claim;
  }
  std::string Create(const v1::Claim& claim) {
    const auto created = control::Client::Connect(daemon_->socket())->CreateClaim(claim);
    return created.ok() ? "" : std::string(created.status().message());
  }
  std::string DoorOf(const std::string& key) const {
    return daemon_->directory() + "/claims/" + key + "/xpud.sock";
  }
  std::string UserDoorOf(const std::string& key) const {
    return daemon_->directory() + "/doors/" + key + "/xpud.sock";
  }
  static ConnectOptions At(const std::string& socket) {
    ConnectOptions options;
    options.address = socket;
    options.start_daemon = false;
    return options;
  }
  static absl::StatusOr<std::unique_ptr<Session>> ConnectAs(uid_t user, const std::string& socket) {
    return As(user, [&] { return Session::Connect(At(socket)); });
  }
  // Who is charged for the only session.
  std::string Tenant() {
    const auto list = control::Client::Connect(daemon_->socket())->ListSessions();
    return list->sessions_size() == 1 ? list->sessions(0).tenant() : std::to_string(list->sessions_size());
  }
  static void Work(const Session& session) {
    const Queue queue = session.DefaultQueue(0);
    const std::vector<float> ones(16, 1.0F);
    const auto tensor = Tensor::FromHost(queue, std::span(ones), {4, 4});
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    ASSERT_TRUE(queue.Synchronize().ok());
  }

  std::unique_ptr<DaemonProcess> daemon_;
};

TEST_F(ClaimUsers, HaveItAtTheOrdinarySocket) {
  v1::Claim claim = Claim("theirs");
  claim.add_holders()->set_uid(kUser);
  claim.add_devices(1);
  ASSERT_EQ(Create(claim), "");
  {
    const auto session = ConnectAs(kUser, daemon_->socket());
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_EQ((*session)->devices().size(), 1u);
    EXPECT_EQ(Tenant(), "claim:theirs");
  }
  const auto other = ConnectAs(kDoorUser, daemon_->socket());
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ((*other)->devices().size(), 2u);
  claim.set_key("another");
  EXPECT_THAT(Create(claim), HasSubstr("uid:61001 has the claim theirs"));
}

TEST_F(ClaimUsers, HaveADoorForThemselves) {
  v1::Claim claim = Claim("job");
  claim.set_door_uid(kDoorUser);
  claim.add_devices(0);
  ASSERT_EQ(Create(claim), "");
  {
    const auto session = ConnectAs(kDoorUser, UserDoorOf("job"));
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_EQ(Tenant(), "claim:job");
  }
  EXPECT_THAT(std::string(ConnectAs(kUser, UserDoorOf("job")).status().message()),
              HasSubstr("it is user 61001, and this door of the claim job is for user 61002"));
  // What is below claims/ is for those into whose container it is mounted.
  EXPECT_FALSE(ConnectAs(kDoorUser, DoorOf("job")).ok());
  EXPECT_TRUE(ConnectAs(0, DoorOf("job")).ok());
}

TEST_F(ClaimUsers, SeeTheirOwnClaimAndItsDevices) {
  v1::Claim claim = Claim("mine");
  claim.add_holders()->set_uid(kUser);
  claim.add_devices(1);
  ASSERT_EQ(Create(claim), "");
  ASSERT_EQ(Create(Claim("others")), "");
  const auto session = ConnectAs(kUser, daemon_->socket());
  ASSERT_TRUE(session.ok()) << session.status();
  Work(**session);
  const auto others = ConnectAs(0, DoorOf("others"));
  ASSERT_TRUE(others.ok()) << others.status();
  auto client = As(kUser, [&] { return control::Client::Connect(daemon_->socket()); });
  ASSERT_TRUE(client.ok()) << client.status();
  const auto claims = client->ListClaims();
  ASSERT_TRUE(claims.ok()) << claims.status();
  ASSERT_EQ(claims->claims_size(), 1);
  EXPECT_EQ(claims->claims(0).key(), "mine");
  EXPECT_EQ(claims->claims(0).sessions(), 1u);
  const auto devices = client->ListDevices();
  ASSERT_EQ(devices->devices_size(), 1);
  EXPECT_EQ(devices->devices(0).index(), 0u) << "its own number, of the daemon's device 1";
  const auto memory = client->ListMemory();
  ASSERT_TRUE(memory.ok()) << memory.status();
  ASSERT_EQ(memory->devices_size(), 1);
  EXPECT_EQ(memory->devices(0).device(), 0u);
  ASSERT_EQ(memory->tenants_size(), 1);
  EXPECT_EQ(memory->tenants(0).device(), 0u);
  EXPECT_EQ(memory->tenants(0).tenant(), "claim:mine");
  const auto status = client->GetStatus();
  ASSERT_EQ(status->sessions_size(), 1);
  EXPECT_EQ(status->sessions(0).uid(), kUser);
  ASSERT_EQ(status->sessions(0).devices_size(), 1);
  EXPECT_EQ(status->sessions(0).devices(0).index(), 0u);
  EXPECT_EQ(status->claims_size(), 1);
  for (const v1::TenantTimes& times : status->tenant_times()) EXPECT_EQ(times.device(), 0u);
  EXPECT_THAT(std::string(client->CreateClaim(Claim("more")).status().message()),
              HasSubstr("only operators"));
  EXPECT_THAT(std::string(client->DeleteClaim("mine").status().message()), HasSubstr("only operators"));
}

// A gateway's tenant has the claim that was made for it, and a gateway can vouch for nobody at a claim's
// door.
TEST_F(ClaimUsers, OfAGatewayAreItsTenants) {
  v1::Claim claim = Claim("team");
  claim.add_holders()->set_tenant_name("team-a");  // of root's gateway
  ASSERT_EQ(Create(claim), "");
  const auto connect = [](const std::string& socket) { return client::Connect(At(socket), "team-a"); };
  {
    const auto connection = connect(daemon_->socket());
    ASSERT_TRUE(connection.ok()) << connection.status();
    EXPECT_EQ(Tenant(), "claim:team");
  }
  EXPECT_THAT(std::string(connect(DoorOf("team")).status().message()),
              HasSubstr("nobody may speak for others"));
}

}  // namespace
}  // namespace xpud::e2e
