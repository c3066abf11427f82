// Users' processes ask the agent for grants at its local socket: real sockets, users, processes, and a real
// daemon.
#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "deploy/agent/grants/grants.grpc.pb.h"
#include "deploy/agent/grants/grants.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/unix_address.h"
#include "sdk/control/client.h"
#include "tests/e2e/as_user.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/signal_process.h"

namespace xpud::e2e {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
namespace messages = grants::v1;

constexpr uid_t kUser = 61'001, kOther = 61'002, kStranger = 61'003;
constexpr uint64_t kMiB = 1 << 20;

UniqueFd ConnectTo(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = *UnixAddress(path);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return UniqueFd();
  fcntl(fd.get(), F_SETFL, O_NONBLOCK);
  return fd;
}

// A user's connection to the agent.
class User {
 public:
  explicit User(UniqueFd connection)
      : stub_(messages::Grants::NewStub(grpc::CreateInsecureChannelFromFd("agent", connection.Release()))) {}

  grpc::Status Grant(const messages::GrantRequest& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 20s);
    return stub_->Grant(&context, request, &granted);
  }
  grpc::Status Renew(const std::string& grant, uint64_t lease_ms = 0) {
    grpc::ClientContext context;
    messages::RenewRequest request;
    request.set_grant(grant);
    request.set_lease_ms(lease_ms);
    return stub_->Renew(&context, request, &renewed);
  }
  grpc::Status Return(const std::string& grant) {
    grpc::ClientContext context;
    messages::ReturnRequest request;
    request.set_grant(grant);
    messages::ReturnResponse response;
    return stub_->Return(&context, request, &response);
  }
  messages::ListResponse List() {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 20s);
    messages::ListResponse response;
    const grpc::Status status = stub_->List(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  messages::Grants::Stub& stub() { return *stub_; }

  messages::GrantResponse granted;
  messages::RenewResponse renewed;

 private:
  std::unique_ptr<messages::Grants::Stub> stub_;
};

// A process of its own that connects to the agent and hands the connection to the test.
class CallerProcess {
 public:
  CallerProcess(uid_t uid, const std::string& socket) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const UniqueFd ours(ends[0]), theirs(ends[1]);
    pid_ = fork();
    if (pid_ == 0) Run(uid, socket, theirs.get());
    char byte = 0;
    iovec part = {&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    EXPECT_EQ(recvmsg(ours.get(), &message, MSG_CMSG_CLOEXEC), 1);
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    user_ = std::make_unique<User>(UniqueFd(fd));
  }
  ~CallerProcess() { Kill(); }
  CallerProcess(const CallerProcess&) = delete;
  CallerProcess& operator=(const CallerProcess&) = delete;

  User& user() { return *user_; }
  pid_t pid() const { return pid_; }
  void Kill() {
    if (pid_ <= 0) return;
    SignalProcess(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  [[noreturn]] static void Run(uid_t uid, const std::string& path, int parent) {
    if (setresuid(uid, uid, uid) != 0) _exit(1);
    const UniqueFd connection = ConnectTo(path);
    char byte = 1;
    iovec part = {&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = connection.get();
    std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    if (sendmsg(parent, &message, 0) != 1) _exit(1);
    while (true) pause();
  }

  pid_t pid_ = -1;
  std::unique_ptr<User> user_;
};

messages::GrantRequest Share(uint32_t share, const std::string& name = "") {
  messages::GrantRequest request;
  request.set_share(share);
  request.set_name(name);
  return request;
}

class AgentGrants : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can be several users";
    if (std::getenv("XPUD_TEST_REMOTE") != nullptr) GTEST_SKIP() << "users of this machine";
    daemon_ = std::make_unique<DaemonProcess>(
        std::vector<std::string>{"--socket-mode", "0666", "--test-devices", "2"});
    ASSERT_EQ(chmod(daemon_->directory().c_str(), 0711), 0);
    StartAgent();
  }
  void StartAgent() {
    link_ = std::make_unique<agent::DaemonLink>(daemon_->socket());
    keeper_ = std::make_unique<agent::ClaimKeeper>(*link_, counters_);
    agent::Budgets budgets;
    budgets.users[kUser] = {.share = 60, .claims = 4};
    budgets.users[kOther] = {.share = 10, .memory = 64 * kMiB, .best_class = "batch", .lease_ms = 5000};
    auto started = agent::Grants::Start(*keeper_, agent_socket(), budgets);
    ASSERT_TRUE(started.ok()) << started.status();
    grants_ = *std::move(started);
  }
  void RestartAgent() {
    grants_.reset();
    keeper_.reset();
    StartAgent();
    Reconcile();
  }
  void Reconcile() {
    const auto claims = keeper_->List("grants");
    ASSERT_TRUE(claims.ok()) << claims.status();
    const absl::Status status = grants_->Reconcile(*claims);
    EXPECT_TRUE(status.ok()) << status;
  }

  std::string agent_socket() const { return daemon_->directory() + "/agent.sock"; }
  UniqueFd ConnectAs(uid_t uid) const {
    return As(uid, [&] { return ConnectTo(agent_socket()); });
  }
  User UserOf(uid_t uid) const { return User(ConnectAs(uid)); }
  std::vector<v1::Claim> Claims() const { return *keeper_->List("grants"); }
  bool HasClaims(size_t count) const {
    return Within(5s, [&] { return Claims().size() == count; });
  }

  agent::Counters counters_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<agent::DaemonLink> link_;
  std::unique_ptr<agent::ClaimKeeper> keeper_;
  std::unique_ptr<agent::Grants> grants_;
};

TEST_F(AgentGrants, AreClaimsThatOnlyTheirUserHas) {
  User user = UserOf(kUser);
  messages::GrantRequest request = Share(30, "train");
  request.set_memory_bytes(32 * kMiB);
  request.add_devices(1);
  (*request.mutable_labels())["job"] = "7";
  const grpc::Status status = user.Grant(request);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_GT(user.granted.expires_in_ms(), 50'000u);
  const std::vector<v1::Claim> claims = Claims();
  ASSERT_EQ(claims.size(), 1u);
  EXPECT_EQ(claims[0].time_least(), 2850u);
  EXPECT_EQ(claims[0].memory_most_bytes(), 32 * kMiB);
  EXPECT_EQ(claims[0].labels().at("job"), "7");
  ConnectOptions options;
  options.address = user.granted.address();
  options.start_daemon = false;
  const auto session = As(kUser, [&] { return Session::Connect(options); });
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ((*session)->devices().size(), 1u);
  EXPECT_FALSE(As(kOther, [&] { return Session::Connect(options); }).ok());
  EXPECT_EQ(user.List().grants(0).sessions(), 1u);
  EXPECT_EQ(user.List().budget().share(), 60u);
  EXPECT_EQ(UserOf(kOther).List().grants_size(), 0);
}

TEST_F(AgentGrants, AreTheSameForTheSameRequest) {
  User user = UserOf(kUser);
  ASSERT_TRUE(user.Grant(Share(20, "a")).ok());
  const std::string first = user.granted.grant();
  User again = UserOf(kUser);
  ASSERT_TRUE(again.Grant(Share(20, "a")).ok());
  EXPECT_EQ(again.granted.grant(), first);
  const grpc::Status differs = again.Grant(Share(21, "a"));
  EXPECT_EQ(differs.error_code(), grpc::ALREADY_EXISTS);
  EXPECT_THAT(differs.error_message(), HasSubstr("with another share"));
  ASSERT_TRUE(again.Grant(Share(20)).ok());
  ASSERT_TRUE(again.Grant(Share(20)).ok()) << "without a name each is new";
  EXPECT_EQ(Claims().size(), 3u);
}

TEST_F(AgentGrants, AreLimitedForEachUser) {
  User user = UserOf(kUser), other = UserOf(kOther), stranger = UserOf(kStranger);
  ASSERT_TRUE(user.Grant(Share(60)).ok());
  grpc::Status refused = user.Grant(Share(1));
  EXPECT_EQ(refused.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("uid 61001 has 60 and may have 60 in all"));
  refused = other.Grant(Share(5));
  EXPECT_EQ(refused.error_code(), grpc::INVALID_ARGUMENT);
  messages::GrantRequest request = Share(5);
  request.set_memory_bytes(65 * kMiB);
  refused = other.Grant(request);
  EXPECT_EQ(refused.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("memory of 65.00 MiB was asked"));
  request.set_memory_bytes(64 * kMiB);
  request.set_class_("interactive");
  EXPECT_THAT(other.Grant(request).error_message(), HasSubstr("uid 61002 may have batch"));
  request.set_class_("");
  EXPECT_TRUE(other.Grant(request).ok());
  refused = stranger.Grant(Share(1));
  EXPECT_EQ(refused.error_code(), grpc::PERMISSION_DENIED);
  EXPECT_THAT(refused.error_message(), HasSubstr("agent.yaml"));
  User root = UserOf(0);
  ASSERT_TRUE(root.Grant(Share(10)).ok());
  refused = root.Grant(Share(40));
  EXPECT_EQ(refused.error_code(), grpc::RESOURCE_EXHAUSTED) << "the daemon's guarantees";
  refused = root.Grant(Share(101));
  EXPECT_EQ(refused.error_code(), grpc::INVALID_ARGUMENT);
  request = Share(1);
  request.add_devices(2);
  EXPECT_EQ(root.Grant(request).error_code(), grpc::INVALID_ARGUMENT) << "there is no device 2";
}

TEST_F(AgentGrants, StayIfTheirUserMayHaveLess) {
  User user = UserOf(kUser);
  messages::GrantRequest request = Share(60, "train");
  request.set_lease_ms(600'000);
  ASSERT_TRUE(user.Grant(request).ok());
  const std::string grant = user.granted.grant();
  grants_->SetBudgets({.users = {{kUser, {.share = 70, .claims = 4, .lease_ms = 5'000}}}});
  EXPECT_EQ(Claims().size(), 1u);
  EXPECT_TRUE(user.Renew(grant).ok());
  EXPECT_TRUE(user.Renew(grant, 600'000).ok()) << "the lease that it has";
  EXPECT_EQ(user.Renew(grant, 600'001).error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(user.Grant(Share(11)).error_code(), grpc::RESOURCE_EXHAUSTED) << "of 70 it has 60";
  request = Share(10);
  request.set_lease_ms(5'000);
  EXPECT_TRUE(user.Grant(request).ok());
  grants_->SetBudgets({});
  EXPECT_EQ(user.Grant(Share(1)).error_code(), grpc::PERMISSION_DENIED);
  EXPECT_TRUE(user.Renew(grant).ok());
  EXPECT_EQ(user.Renew(grant, 600'001).error_code(), grpc::PERMISSION_DENIED);
  EXPECT_TRUE(user.Return(grant).ok());
  EXPECT_EQ(Claims().size(), 1u);
}

TEST_F(AgentGrants, AreReturnedByTheirUserAlone) {
  User user = UserOf(kUser), other = UserOf(kOther);
  ASSERT_TRUE(user.Grant(Share(20)).ok());
  const std::string grant = user.granted.grant();
  EXPECT_EQ(other.Return(grant).error_code(), grpc::PERMISSION_DENIED);
  EXPECT_EQ(other.Renew(grant).error_code(), grpc::PERMISSION_DENIED);
  EXPECT_EQ(user.Return("xpud").error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_TRUE(user.Renew(grant, 600'000).ok());
  EXPECT_GT(user.renewed.expires_in_ms(), 500'000u);
  EXPECT_TRUE(user.Return(grant).ok());
  EXPECT_TRUE(user.Return(grant).ok()) << "again";
  EXPECT_EQ(user.Renew(grant).error_code(), grpc::NOT_FOUND);
  EXPECT_TRUE(Claims().empty());
}

TEST_F(AgentGrants, EndWithTheirLease) {
  User user = UserOf(kUser);
  messages::GrantRequest request = Share(20, "short");
  request.set_lease_ms(1000);
  ASSERT_TRUE(user.Grant(request).ok());
  const std::string grant = user.granted.grant();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(600ms);
    EXPECT_TRUE(user.Renew(grant).ok());
  }
  EXPECT_TRUE(HasClaims(0));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 2700ms);
  EXPECT_EQ(user.Renew(grant).error_code(), grpc::NOT_FOUND);
  EXPECT_TRUE(user.Grant(request).ok());
}

TEST_F(AgentGrants, EndWithTheirProcess) {
  CallerProcess caller(kUser, agent_socket());
  messages::GrantRequest request = Share(20, "mine");
  request.set_until_caller_ends(true);
  const grpc::Status status = caller.user().Grant(request);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(caller.user().Grant(request).ok()) << "again";
  EXPECT_EQ(caller.user().List().grants(0).pid(), static_cast<uint32_t>(caller.pid()));
  ASSERT_TRUE(caller.user().Grant(Share(20, "leased")).ok());
  User sibling = UserOf(kUser);
  EXPECT_THAT(sibling.Grant(request).error_message(), HasSubstr("with another until_caller_ends"));
  caller.Kill();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(HasClaims(1)) << "the other has its lease";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
  EXPECT_TRUE(sibling.Grant(request).ok());
}

TEST_F(AgentGrants, AreFoundByAnAgentThatStartsAnew) {
  CallerProcess lives(kUser, agent_socket()), dies(kUser, agent_socket());
  messages::GrantRequest request = Share(10, "lives");
  request.set_until_caller_ends(true);
  ASSERT_TRUE(lives.user().Grant(request).ok());
  const std::string grant = lives.user().granted.grant();
  request.set_name("dies");
  ASSERT_TRUE(dies.user().Grant(request).ok());
  ASSERT_TRUE(UserOf(kUser).Grant(Share(30, "leased")).ok());
  grants_.reset();
  dies.Kill();
  EXPECT_EQ(Claims().size(), 3u) << "the end of an agent ends no grant";
  RestartAgent();
  EXPECT_EQ(Claims().size(), 2u);
  User user = UserOf(kUser);
  EXPECT_THAT(user.Grant(Share(21)).error_message(), HasSubstr("has 40 and may have 60"));
  EXPECT_TRUE(user.Renew(grant).ok());
  lives.Kill();
  EXPECT_TRUE(HasClaims(1));
}

// The agent renews a grant without a lease while its process lives.
TEST_F(AgentGrants, WithoutALeaseAreRenewedByTheAgent) {
  CallerProcess caller(kUser, agent_socket());
  messages::GrantRequest request = Share(10);
  request.set_until_caller_ends(true);
  ASSERT_TRUE(caller.user().Grant(request).ok());
  std::this_thread::sleep_for(300ms);
  const uint64_t before = Claims().at(0).expires_in_ms();
  Reconcile();
  EXPECT_GT(Claims().at(0).expires_in_ms(), before + 100);
}

TEST_F(AgentGrants, OutliveADaemonThatIsAway) {
  User user = UserOf(kUser);
  ASSERT_TRUE(user.Grant(Share(10)).ok());
  daemon_->Kill();
  EXPECT_EQ(user.Grant(Share(10)).error_code(), grpc::UNAVAILABLE);
  daemon_->Restart();
  EXPECT_TRUE(user.Grant(Share(10)).ok());
}

// Whether the agent has hung up.
bool IsClosed(const UniqueFd& connection) {
  return Within(5s, [&] {
    char bytes[4096];
    const ssize_t count = recv(connection.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    return count == 0 || (count < 0 && errno == ECONNRESET);
  });
}

TEST_F(AgentGrants, BytesThatAreNoCallsEndTheirConnectionAlone) {
  User user = UserOf(kUser);
  ASSERT_TRUE(user.Grant(Share(10)).ok());
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  std::string noise(100'000, '\0');
  uint32_t state = 1;
  for (char& byte : noise) byte = static_cast<char>((state = state * 1'664'525 + 1'013'904'223) >> 24);
  const std::string large_frame("\xff\xff\xff\x00\x00\x00\x00\x00\x01", 9);
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), noise, preface + noise,
                                   absl::StrCat(preface, large_frame, noise)}) {
    const UniqueFd hostile = ConnectAs(kStranger);
    (void)send(hostile.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    EXPECT_TRUE(IsClosed(hostile)) << bytes.substr(0, 30);
  }
  messages::GrantRequest large = Share(10);
  large.set_name(std::string(70'000, 'a'));
  EXPECT_EQ(user.Grant(large).error_code(), grpc::RESOURCE_EXHAUSTED) << "larger than a message may be";
  {
    grpc::ClientContext context;
    context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    messages::GrantResponse response;
    large.set_name(std::string(10'000, 'a'));
    EXPECT_EQ(user.stub().Grant(&context, large, &response).error_code(), grpc::UNIMPLEMENTED);
  }
  EXPECT_TRUE(user.Grant(Share(10)).ok());
}

TEST_F(AgentGrants, ConnectionsAreLimitedForEachUser) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 16; ++i) silent.push_back(ConnectAs(kStranger));
  EXPECT_TRUE(IsClosed(ConnectAs(kStranger)));
  EXPECT_TRUE(UserOf(kUser).Grant(Share(10)).ok());
  for (uid_t user = kStranger + 1; user < kStranger + 4; ++user)
    for (int i = 0; i < 16; ++i) silent.push_back(ConnectAs(user));
  EXPECT_TRUE(IsClosed(ConnectAs(kUser))) << "all users have 64";
  EXPECT_TRUE(UserOf(0).Grant(Share(10)).ok());
  silent.clear();
  EXPECT_TRUE(
      Within(5s, [&] { return UserOf(kStranger).Grant(Share(1)).error_code() == grpc::PERMISSION_DENIED; }));
}

// Asks for many grants at once, without waiting for answers.
TEST_F(AgentGrants, TenThousandAskedAtOnceAreBoundedAndDisturbNobody) {
  constexpr int kCalls = 10'000;
  struct Call {
    grpc::ClientContext context;
    messages::GrantRequest request = Share(1);
    messages::GrantResponse response;
  };
  std::vector<std::unique_ptr<User>> users;
  for (int i = 0; i < 4; ++i) users.push_back(std::make_unique<User>(ConnectAs(kUser)));
  std::vector<Call> calls(kCalls);
  std::atomic<int> granted{0}, refused{0}, ended{0};
  for (int i = 0; i < kCalls; ++i) {
    Call& call = calls[static_cast<size_t>(i)];
    call.context.set_deadline(std::chrono::system_clock::now() + 5s);
    users[static_cast<size_t>(i % 4)]->stub().async()->Grant(
        &call.context, &call.request, &call.response, [&](const grpc::Status& status) {
          granted += status.ok();
          refused += status.error_code() == grpc::RESOURCE_EXHAUSTED;
          ++ended;
        });
  }
  User other = UserOf(kOther);
  for (int i = 1; i <= 10; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    messages::GrantRequest request = Share(1);
    request.set_memory_bytes(kMiB);
    const grpc::Status status = other.Grant(request);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
    EXPECT_EQ(other.List().grants_size(), i);
  }
  EXPECT_TRUE(Within(20s, [&] { return ended == kCalls; }));
  EXPECT_EQ(granted, 4);
  EXPECT_GT(refused, 10);
}

TEST_F(AgentGrants, OfAUserWithoutLimitAreLimitedByTheDaemon) {
  User root = UserOf(0);
  messages::GrantRequest request = Share(1);
  request.set_lease_ms(600'000);
  int granted = 0;
  for (int i = 0; i < 300; ++i) {
    const grpc::Status status = root.Grant(request);
    granted += status.ok();
    if (!status.ok()) {
      ASSERT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED) << status.error_message();
    }
  }
  EXPECT_EQ(granted, 100);
  EXPECT_EQ(Claims().size(), 100u);
}

TEST_F(AgentGrants, AgentsDoNotTakeEachOthersSocket) {
  const auto second = agent::Grants::Start(*keeper_, agent_socket(), {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(UserOf(kUser).Grant(Share(1)).ok());
  grants_.reset();
  EXPECT_NE(access(agent_socket().c_str(), F_OK), 0);
}

}  // namespace
}  // namespace xpud::e2e
