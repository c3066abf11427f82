// What users who are not operators see and do through the control plane. Two users work beside each other.
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/transport/handshake.h"
#include "proto/transport/requests.h"
#include "sdk/client/connect.h"
#include "sdk/control/client.h"
#include "tests/e2e/as_user.h"
#include "tests/e2e/daemon_process.h"
#include "xpud/tensor.h"

namespace xpud::e2e {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kUser = 61'001, kOther = 61'002;

class UserView : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can be several users";
    if (std::getenv("XPUD_TEST_REMOTE") != nullptr) GTEST_SKIP() << "users of this machine";
    daemon_ = std::make_unique<DaemonProcess>(std::vector<std::string>{"--socket-mode", "0666"});
    ASSERT_EQ(chmod(daemon_->directory().c_str(), 0711), 0);
    session_ = As(kUser, [&] { return daemon_->Connect("mine"); });
    others_session_ = As(kOther, [&] { return daemon_->Connect("others"); });
    Work(*session_, 1);
    Work(*others_session_, 1);
    others_id_ = SessionOf(kOther);
    id_ = SessionOf(kUser);
  }

  static void Work(const Session& session, int products) {
    const Queue queue = session.DefaultQueue(0);
    const std::vector<float> ones(16, 1.0F);
    const auto tensor = Tensor::FromHost(queue, std::span(ones), {4, 4});
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    for (int i = 0; i < products; ++i) ASSERT_TRUE(Matmul(*tensor, *tensor).ok());
    ASSERT_TRUE(queue.Synchronize().ok());
  }
  absl::StatusOr<control::Client> ConnectAs(uid_t user) const {
    return As(user, [&] { return control::Client::Connect(daemon_->socket()); });
  }
  uint64_t SessionOf(uid_t user) const {
    const auto list = ConnectAs(0)->ListSessions();
    for (const v1::Session& session : list->sessions())
      if (session.uid() == user) return session.id();
    return 0;
  }
  static v1::StartProfileRequest Profile(uint64_t session) {
    v1::StartProfileRequest request;
    if (session != 0) request.mutable_selection()->set_session(session);
    return request;
  }

  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<Session> session_, others_session_;
  uint64_t id_ = 0, others_id_ = 0;
};

TEST_F(UserView, ShowsDevicesAndTheUsersOwnSessions) {
  auto client = ConnectAs(kUser);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_GE(client->ListDevices()->devices_size(), 1);
  EXPECT_FALSE(client->GetVersion()->version().empty());
  const auto sessions = client->ListSessions();
  ASSERT_TRUE(sessions.ok()) << sessions.status();
  ASSERT_EQ(sessions->sessions_size(), 1);
  EXPECT_EQ(sessions->sessions(0).id(), id_);
  const auto status = client->GetStatus();
  ASSERT_TRUE(status.ok());
  ASSERT_EQ(status->sessions_size(), 1);
  ASSERT_EQ(status->tenants_size(), 1);
  EXPECT_EQ(status->tenants(0).tenant(), "uid:61001");
  for (const v1::TenantTimes& times : status->tenant_times()) EXPECT_EQ(times.tenant(), "uid:61001");
  EXPECT_EQ(ConnectAs(0)->ListSessions()->sessions_size(), 2) << "operators see all";
}

TEST_F(UserView, ShowsTheUsersOwnMemory) {
  auto client = ConnectAs(kUser);
  ASSERT_TRUE(client.ok()) << client.status();
  const auto second_session = As(kUser, [&] { return daemon_->Connect("mine, too"); });
  const Buffer buffer = *session_->DefaultQueue(0).Allocate(1 << 20);
  const auto ticket = session_->Share(buffer);
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  const auto attached = second_session->Attach(*ticket);
  ASSERT_TRUE(attached.ok()) << attached.status();
  const auto memory = client->ListMemory();
  ASSERT_TRUE(memory.ok()) << memory.status();
  ASSERT_EQ(memory->tenants_size(), 1);
  EXPECT_EQ(memory->tenants(0).tenant(), "uid:61001");
  EXPECT_GT(memory->tenants(0).on_device_bytes(), 0u);
  EXPECT_EQ(memory->tenants(0).shared_bytes(), uint64_t{1} << 20);
  EXPECT_EQ(memory->tenants(0).sharers(), 2u);
  ASSERT_EQ(memory->devices_size(), client->ListDevices()->devices_size());
  const auto status = client->GetStatus();
  ASSERT_TRUE(status.ok()) << status.status();
  ASSERT_EQ(status->tenant_memory_size(), 1);
  EXPECT_EQ(status->tenant_memory(0).tenant(), "uid:61001");
  const auto all = ConnectAs(0)->ListMemory();
  ASSERT_EQ(all->tenants_size(), 2) << "operators see all";
  EXPECT_EQ(all->tenants(0).on_device_bytes() + all->tenants(1).on_device_bytes(),
            all->devices(0).on_device_bytes());
  EXPECT_EQ(all->tenants(1).tenant(), "uid:61002");
  EXPECT_EQ(all->tenants(1).shared_bytes(), 0u);
}

TEST_F(UserView, ProfilesTheUsersOwnSessionsBesideOperators) {
  auto client = ConnectAs(kUser), operators = ConnectAs(0);
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_EQ(operators->StartProfile(Profile(0))->sessions(), 2u);
  Work(*session_, 5);
  const auto started = client->StartProfile(Profile(0));
  ASSERT_TRUE(started.ok()) << started.status();
  EXPECT_EQ(started->sessions(), 1u) << "all that the user has";
  Work(*session_, 10);
  Work(*others_session_, 10);
  EXPECT_EQ(client->StopProfile({})->sessions(), 1u);
  Work(*session_, 20);
  const auto list = client->ListProfiles();
  ASSERT_EQ(list->profiles_size(), 1);
  EXPECT_EQ(list->profiles(0).session(), id_);
  const auto count = [&](control::Client& by, uint64_t session) {
    const auto read = by.ReadProfile(session, 0, 0);
    EXPECT_TRUE(read.ok()) << read.status();
    int products = 0;
    for (const v1::ProfiledCommand& command : read->commands()) products += command.op() == "mm";
    return products;
  };
  EXPECT_EQ(count(*client, id_), 10);
  EXPECT_EQ(count(*operators, id_), 35) << "the operators' goes on";
  EXPECT_EQ(count(*operators, others_id_), 10);
  EXPECT_GE(operators->ReadMemoryHistory(0, 0)->samples_size(), 2) << "of both users";
  const auto memory = client->ReadMemoryHistory(0, 0);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->samples_size(), 0) << "of the operators' profile";
  EXPECT_EQ(client->ReadMemoryHistory(64, 0).status().code(), absl::StatusCode::kInvalidArgument);
  const auto flight = client->ReadFlight(id_, 5);
  ASSERT_TRUE(flight.ok()) << flight.status();
  EXPECT_EQ(flight->flights(0).commands_size(), 5);
}

TEST_F(UserView, HidesTheSessionsOfOthers) {
  auto client = ConnectAs(kUser), operators = ConnectAs(0);
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE(operators->StartProfile(Profile(others_id_)).ok());
  const std::string absent = "there is no session " + std::to_string(others_id_);
  const auto text = [](const auto& refused) { return std::string(refused.status().message()); };
  EXPECT_THAT(text(client->StartProfile(Profile(others_id_))), HasSubstr(absent));
  EXPECT_THAT(text(client->StopProfile(Profile(others_id_).selection())), HasSubstr(absent));
  v1::StartProfileRequest of_tenant;
  of_tenant.mutable_selection()->set_tenant("uid:61002");
  const auto denied = client->StartProfile(of_tenant);
  EXPECT_EQ(denied.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(text(denied), HasSubstr("you see the sessions of uid:61001"));
  EXPECT_FALSE(client->ReadProfile(others_id_, 0, 0).ok());
  EXPECT_FALSE(client->ReadFlight(others_id_, 10).ok());
  EXPECT_EQ(client->ListProfiles()->profiles_size(), 0);
  others_session_.reset();
  ASSERT_TRUE(Within(std::chrono::seconds(5), [&] { return SessionOf(kOther) == 0; }));
  EXPECT_FALSE(client->ReadFlight(others_id_, 10).ok()) << "nor of those that have ended";
  EXPECT_FALSE(client->ReadProfile(others_id_, 0, 0).ok());
  EXPECT_TRUE(operators->ReadFlight(others_id_, 10).ok());
}

TEST_F(UserView, ChangesNothingOfTheDaemon) {
  auto client = ConnectAs(kUser);
  ASSERT_TRUE(client.ok()) << client.status();
  v1::SetQuotaRequest quota;
  quota.set_default_(true);
  const absl::Status refusals[] = {
      client->SetQuota(quota).status(),      client->SetDrain(true).status(),
      client->ListEvents(0, false).status(), client->ListLog(0, false, "").status(),
      client->GetConfig().status(),
  };
  for (const absl::Status& refusal : refusals) {
    EXPECT_EQ(refusal.code(), absl::StatusCode::kPermissionDenied) << refusal;
    EXPECT_THAT(std::string(refusal.message()), HasSubstr("only operators may "));
  }
  EXPECT_FALSE(ConnectAs(0)->GetStatus()->daemon().drained());
  Work(*others_session_, 1);
}

// Both sockets of the control plane: the operators', and a user's view.
TEST_F(UserView, ARequestBeyondOneMebibyteIsRefusedUnread) {
  v1::SetQuotaRequest large;
  large.set_uid(kUser);
  large.set_tenant_name(std::string(2 << 20, 'x'));
  large.set_bytes(1);
  const int before = ConnectAs(0)->ListQuotas()->quotas_size();
  for (const uid_t user : {kUser, uid_t{0}}) {
    auto client = ConnectAs(user);
    ASSERT_TRUE(client.ok()) << client.status();
    const absl::Status refusal = client->SetQuota(large).status();
    EXPECT_EQ(refusal.code(), absl::StatusCode::kResourceExhausted) << refusal;
    EXPECT_TRUE(client->GetStatus().ok()) << "the connection serves on";
  }
  EXPECT_EQ(ConnectAs(0)->ListQuotas()->quotas_size(), before);
}

TEST_F(UserView, ShowsTheQuotasThatTheUserHas) {
  auto operators = ConnectAs(0), client = ConnectAs(kUser);
  ASSERT_TRUE(client.ok()) << client.status();
  for (const uid_t user : {kUser, kOther}) {
    v1::SetQuotaRequest request;
    request.set_uid(user);
    request.set_bytes(user == kUser ? 64 << 20 : 32 << 20);
    ASSERT_TRUE(operators->SetQuota(request).ok());
  }
  const auto list = client->ListQuotas();
  ASSERT_TRUE(list.ok()) << list.status();
  std::vector<std::string> seen;
  for (const v1::Quota& quota : list->quotas()) {
    if (quota.device() != 0) continue;
    seen.push_back(quota.default_()                         ? "default"
                   : quota.target_case() == v1::Quota::kUid ? "uid:" + std::to_string(quota.uid())
                                                            : "session:" + std::to_string(quota.session()));
    if (!quota.default_()) EXPECT_EQ(quota.effective_bytes(), 64u << 20);
  }
  EXPECT_THAT(seen,
              ::testing::UnorderedElementsAre("default", "uid:61001", "session:" + std::to_string(id_)));
  EXPECT_GT(operators->ListQuotas()->quotas_size(), list->quotas_size()) << "operators see those of others";
}

TEST_F(UserView, ClosesTheUsersOwnSessionsAndNoOthers) {
  auto client = ConnectAs(kUser);
  ASSERT_TRUE(client.ok()) << client.status();
  const auto refused = client->CloseSession(others_id_);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("there is no session " + std::to_string(others_id_)));
  Work(*others_session_, 1);
  const auto closed = client->CloseSession(id_);
  ASSERT_TRUE(closed.ok()) << closed.status();
  EXPECT_EQ(closed->client_name(), "mine");
  EXPECT_EQ(closed->uid(), kUser);
  absl::Status ended;  // the session learns of it a moment after the answer
  EXPECT_TRUE(Within(std::chrono::seconds(5), [&] {
    ended = session_->DefaultQueue(0).Synchronize();
    return !ended.ok();
  }));
  EXPECT_THAT(std::string(ended.message()), HasSubstr("session closed by its user"));
  EXPECT_TRUE(Within(std::chrono::seconds(5), [&] { return SessionOf(kUser) == 0; }));
  Work(*others_session_, 1);
}

TEST_F(UserView, AProfileTakesNoMoreMemoryThanUsersMayHave) {
  auto client = ConnectAs(kUser);
  v1::StartProfileRequest request = Profile(0);
  request.set_commands(4'000'000);
  ASSERT_TRUE(client->StartProfile(request).ok());
  const auto second = As(kUser, [&] { return daemon_->Connect("second"); });
  Work(*second, 1);
  const auto refused = client->StartProfile(request);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("for 2 sessions"));
  EXPECT_TRUE(ConnectAs(0)->StartProfile(request).ok()) << "operators have room of their own";
}

TEST_F(UserView, OfOneUserAreFewAndEndWithTheirSocket) {
  std::vector<absl::StatusOr<control::Client>> views;
  for (int i = 0; i < 4; ++i) {
    views.push_back(ConnectAs(kUser));
    ASSERT_TRUE(views.back().ok()) << views.back().status();
    EXPECT_TRUE(views.back()->GetVersion().ok());
  }
  const auto refused = ConnectAs(kUser);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(ConnectAs(kOther).ok());
  views.pop_back();
  EXPECT_TRUE(Within(std::chrono::seconds(5), [&] { return ConnectAs(kUser).ok(); }));
  const size_t before = daemon_->OpenFileCount();
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(Within(std::chrono::seconds(5), [&] { return ConnectAs(kUser).ok(); }));
  EXPECT_TRUE(Within(std::chrono::seconds(5), [&] { return daemon_->OpenFileCount() <= before; }));
}

TEST_F(UserView, BytesThatAreNoCallsAndWordsAfterTheQuestionDisturbNobody) {
  const auto ask = [&](UniqueFd& socket) {
    socket = As(kUser, [&] { return *client::ConnectSocket(daemon_->socket()); });
    transport::Hello hello = {};
    hello.magic = transport::kViewMagic;
    EXPECT_TRUE(transport::SendMessage(socket.get(), std::as_bytes(std::span(&hello, 1))).ok());
    transport::Answer answer = {};
    UniqueFd stream;
    EXPECT_TRUE(transport::ReceiveMessage(socket.get(), std::as_writable_bytes(std::span(&answer, 1)),
                                          std::span(&stream, 1))
                    .ok());
    return stream;
  };
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  for (const std::string& bytes :
       {std::string(100'000, 'x'), preface + std::string(100'000, '\xff'), preface}) {
    UniqueFd socket;
    const UniqueFd stream = ask(socket);
    ASSERT_TRUE(stream.valid());
    (void)!write(stream.get(), bytes.data(), bytes.size());
    Work(*others_session_, 10);
  }
  UniqueFd socket;
  const UniqueFd stream = ask(socket);
  ASSERT_TRUE(transport::SendMessage(socket.get(), std::as_bytes(std::span("more"))).ok());
  char byte;
  EXPECT_TRUE(
      Within(std::chrono::seconds(5), [&] { return recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0; }));
  EXPECT_TRUE(ConnectAs(kUser)->ListSessions().ok());
}

}  // namespace
}  // namespace xpud::e2e
