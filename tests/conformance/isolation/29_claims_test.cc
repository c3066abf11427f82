// Clients of one claim that reach for another's, and claims that come, change and go as fast as possible.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "proto/transport/requests.h"
#include "sdk/client/connect.h"
#include "sdk/control/client.h"
#include "tests/conformance/isolation/commands.h"
#include "tests/conformance/isolation/isolation_test.h"

namespace xpud::isolation {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

class ClaimsTest : public Isolation {
 protected:
  ClaimsTest() : Isolation({"--test-devices", "2"}) {}
  void SetUp() override {
    if (IsRemote()) GTEST_SKIP() << "doors are sockets of this machine";
  }

  control::Client Operator() const { return *control::Client::Connect(daemon_.socket()); }
  static v1::Claim Claim(const std::string& key) {
    v1::Claim claim;
    claim.set_key(key);
    return claim;
  }
  std::string DoorOf(const std::string& key) const {
    return daemon_.directory() + "/claims/" + key + "/xpud.sock";
  }
  static absl::StatusOr<std::unique_ptr<Session>> Connect(const std::string& socket) {
    ConnectOptions options;
    options.address = socket;
    options.start_daemon = false;
    options.timeout = seconds(5);
    return Session::Connect(options);
  }
};

// The innocent client works on device 0, which the claim does not have.
TEST_F(ClaimsTest, NoNumberNamesADeviceOfOthers) {
  v1::Claim claim = Claim("one");
  claim.add_devices(1);
  ASSERT_TRUE(Operator().CreateClaim(claim).ok());
  for (const uint32_t device : {1U, 2U, 63U, 64U, 0xffffffffU}) {
    HostileSession hostile(DoorOf("one"));
    EXPECT_EQ(hostile.welcome().device_count, 1);
    transport::Request request = {};
    request.kind = transport::RequestKind::kOpenDevice;
    request.id = device;
    ASSERT_TRUE(transport::SendMessage(hostile.socket(), std::as_bytes(std::span(&request, 1))).ok());
    EXPECT_TRUE(e2e::Within(seconds(5), [&] { return hostile.closed(); })) << device;
  }
  for (const uint32_t device : {1U, 63U, 0xffffU, 0xffffffffU}) {
    HostileSession hostile(DoorOf("one"));
    hostile.Put(Wait(0, 1, 0, device));
    EXPECT_THAT(hostile.Fate(), HasSubstr("a device that the session has not opened")) << device;
  }
  EXPECT_EQ(Operator().DeleteClaim("one")->sessions(), 0u);
  ExpectAsBefore();
}

// What a process can reach of two doors, as bits of its exit status.
enum Reached : int { kOwnDoor = 1, kOtherDoor = 2, kControl = 4, kUnable = 64 };

bool Answers(const std::string& path) { return client::ConnectSocket(path).ok(); }

// In a container, the door is all that there is of the daemon. It may be root there.
TEST_F(ClaimsTest, NoPathLeadsFromOneDoorToAnother) {
  for (const char* key : {"one", "two"}) ASSERT_TRUE(Operator().CreateClaim(Claim(key)).ok());
  const std::string folder = daemon_.directory();
  Child container([&] {
    const std::string kept = "/run/xpud";
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", "/run", "tmpfs", 0, nullptr) != 0 || mkdir(kept.c_str(), 0755) != 0 ||
        mount((folder + "/claims/one").c_str(), kept.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        mount("none", folder.c_str(), "tmpfs", 0, nullptr) != 0)
      _exit(kUnable);
    int reached = Answers(kept + "/xpud.sock") ? kOwnDoor : 0;
    const UniqueFd door(open(kept.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    const std::string by_descriptor = "/proc/self/fd/" + std::to_string(door.get());
    for (const std::string& from : {kept, by_descriptor, folder + "/claims/one"}) {
      for (const char* other :
           {"/../two/xpud.sock", "/../claims/two/xpud.sock", "/../../claims/two/xpud.sock"})
        if (Answers(from + other)) reached |= kOtherDoor;
      for (const char* control : {"/control.sock", "/../control.sock", "/../../control.sock"})
        if (Answers(from + control)) reached |= kControl;
    }
    _exit(reached);
  });
  const int status = container.Wait();
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kUnable) GTEST_SKIP() << "no mount namespaces here";
  EXPECT_EQ(WEXITSTATUS(status), kOwnDoor);
  for (const char* key : {"one", "two"}) EXPECT_TRUE(Operator().DeleteClaim(key).ok());
  ExpectAsBefore();
}

// A user who was given a descriptor of a door's folder has that door, and gets no further from there.
TEST_F(ClaimsTest, NoDescriptorLeadsFromOneDoorToAnother) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  constexpr uid_t kUser = 61'007;
  for (const char* key : {"one", "two"}) ASSERT_TRUE(Operator().CreateClaim(Claim(key)).ok());
  ASSERT_EQ(chmod(daemon_.directory().c_str(), 0755), 0);
  const std::string claims = daemon_.directory() + "/claims";
  const UniqueFd door(open((claims + "/one").c_str(), O_PATH | O_DIRECTORY));
  Child user([&] {
    BecomeUser(kUser);
    const std::string own = "/proc/self/fd/" + std::to_string(door.get());
    int reached = Answers(own + "/xpud.sock") ? kOwnDoor : 0;
    if (openat(door.get(), "../two", O_PATH) >= 0 || open((claims + "/two").c_str(), O_PATH) >= 0 ||
        Answers(own + "/../two/xpud.sock") || Answers(claims + "/two/xpud.sock"))
      reached |= kOtherDoor;
    if (openat(door.get(), "../../control.sock", O_PATH) >= 0 || Answers(own + "/../../control.sock") ||
        Answers(daemon_.directory() + "/control.sock"))
      reached |= kControl;
    // Nor can it put something in the place of the door.
    if (unlinkat(door.get(), "xpud.sock", 0) == 0 || openat(door.get(), "new", O_CREAT | O_WRONLY, 0600) >= 0)
      reached |= kOtherDoor;
    _exit(reached);
  });
  const int status = user.Wait();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), kOwnDoor);
  for (const char* key : {"one", "two"}) EXPECT_TRUE(Operator().DeleteClaim(key).ok());
  ExpectAsBefore();
}

// A client that starts while its claim ends gets a session and loses it, or none; nothing of it is left.
TEST_F(ClaimsTest, ThatAreDeletedWhileTheirClientsStartLeaveNothing) {
  std::atomic<bool> ends{false};
  std::atomic<int> served{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back([&] {
      while (!ends) {
        const auto session = Connect(DoorOf("brief"));
        if (session.ok() && (*session)->DefaultQueue(0).Synchronize().ok()) ++served;
      }
    });
  }
  auto by = Operator();
  for (int round = 0; round < (InFull() ? 500 : 60); ++round) {
    ASSERT_TRUE(by.CreateClaim(Claim("brief")).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 8));
    const auto deleted = by.DeleteClaim("brief");
    ASSERT_TRUE(deleted.ok()) << deleted.status();
  }
  ends = true;
  for (std::thread& client : clients) client.join();
  EXPECT_GT(served, 0);
  EXPECT_EQ(by.ListClaims()->claims_size(), 0);
  ExpectAsBefore();
}

// Changes as fast as four operators can ask, of a claim that works; the innocent client is not held up.
TEST_F(ClaimsTest, ThatChangeAllTheTimeDisturbNobody) {
  constexpr int kOperators = 4;
  auto by = Operator();
  ASSERT_TRUE(by.CreateClaim(Claim("busy")).ok());
  auto session = Connect(DoorOf("busy"));
  ASSERT_TRUE(session.ok()) << session.status();
  v1::UpdateClaimRequest request;
  request.mutable_claim()->set_key("busy");
  for (const char* field : {"weight", "time_most", "memory_least_bytes", "paused"})
    request.mutable_update_mask()->add_paths(field);
  const auto until = std::chrono::steady_clock::now() + seconds(InFull() ? 20 : 2);
  std::atomic<uint32_t> changes{0};
  std::vector<std::thread> operators;
  for (int i = 0; i < kOperators; ++i) {
    operators.emplace_back([&, change = request]() mutable {
      auto own = Operator();
      absl::Status status;
      while (status.ok() && std::chrono::steady_clock::now() < until) {
        const uint32_t number = ++changes;
        change.mutable_claim()->set_weight(1 + number % 1000);
        change.mutable_claim()->set_time_most(1 + number % 10'000);
        change.mutable_claim()->set_memory_least_bytes(number % 2 * kMiB);
        change.mutable_claim()->set_paused(number % 2 != 0);
        status = own.UpdateClaim(change).status();
      }
      EXPECT_TRUE(status.ok()) << status;
    });
  }
  for (std::thread& one : operators) one.join();
  std::printf("[ figures  ] %u changes\n", changes.load());
  request.mutable_claim()->set_weight(100);
  request.mutable_claim()->set_memory_least_bytes(0);
  request.mutable_claim()->set_paused(false);
  request.mutable_claim()->set_time_most(10'000);
  ASSERT_TRUE(by.UpdateClaim(request).ok());
  EXPECT_TRUE((*session)->DefaultQueue(0).Synchronize().ok());
  session->reset();
  EXPECT_TRUE(by.DeleteClaim("busy").ok());
  ExpectAsBefore();
}

TEST_F(ClaimsTest, AreLimitedAndAllCanBeUsed) {
  constexpr int kMost = 1024;
  auto by = Operator();
  for (int i = 0; i < kMost; ++i) {
    const auto created = by.CreateClaim(Claim("c" + std::to_string(i)));
    ASSERT_TRUE(created.ok()) << created.status();
  }
  const absl::Status refused = by.CreateClaim(Claim("more")).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(TextOf(refused), HasSubstr("there are 1024 claims, as many as there may be"));
  for (const int i : {0, kMost / 2, kMost - 1}) {
    const auto session = Connect(DoorOf("c" + std::to_string(i)));
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_TRUE((*session)->DefaultQueue(0).Synchronize().ok());
  }
  for (int i = 0; i < kMost; ++i) ASSERT_TRUE(by.DeleteClaim("c" + std::to_string(i)).ok());
  ExpectAsBefore();
}

}  // namespace
}  // namespace xpud::isolation
