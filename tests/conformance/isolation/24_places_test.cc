// A user who takes as many places for clients as possible: others still get some.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "sdk/client/connect.h"
#include "tests/conformance/isolation/isolation_test.h"

namespace xpud::isolation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr uid_t kGreedy = 54321, kOther = 54322;

absl::StatusOr<std::unique_ptr<Session>> Connect(const std::string& socket) {
  ConnectOptions options;
  options.address = socket;
  options.timeout = milliseconds(3000);
  return Session::Connect(options);
}

bool IsServed(const std::string& socket) {
  const auto session = Connect(socket);
  return session.ok() && (*session)->DefaultQueue(0).Synchronize().ok();
}

class Places : public Isolation {
 protected:
  static constexpr size_t kMax = 8;
  Places() : Isolation({"--user-clients", std::to_string(kMax)}) {}
};

TEST_F(Places, OfTheDaemonsOwnUserAreLimitedTooAndItIsToldInWords) {
  std::vector<std::unique_ptr<Session>> sessions;
  while (sessions.size() + 1 < kMax) sessions.push_back(*Connect(socket()));  // and the innocent client
  const std::string text = "user " + std::to_string(getuid()) + " has 8 clients connected; 8 are allowed";
  for (int i = 0; i < 200; ++i) {
    const auto start = std::chrono::steady_clock::now();
    ASSERT_THAT(TextOf(Connect(socket()).status()), HasSubstr(text)) << "attempt " << i;
    ASSERT_LT(std::chrono::steady_clock::now() - start, seconds(2));
  }
  sessions.pop_back();
  EXPECT_TRUE(e2e::Within(seconds(5), [&] { return IsServed(socket()); })) << "a place was given back";
  sessions.clear();
  ExpectAsBefore();
}

TEST_F(Places, AreTakenByWhoSaysNothingToo) {
  if (IsRemote()) GTEST_SKIP() << "who says nothing to xpud-connect has not reached the gateway";
  std::vector<UniqueFd> silent;
  while (silent.size() + 1 < kMax) silent.push_back(ConnectTo(socket()));
  EXPECT_THAT(TextOf(Connect(socket()).status()), HasSubstr("8 are allowed"));
  EXPECT_TRUE(e2e::Within(seconds(10), [&] { return IsServed(socket()); }))
      << "who does not greet is dropped";
  silent.clear();
  ExpectAsBefore();
}

// With the default limit. Needs root, to act as two other users.
TEST(PlacesOfUsers, OneUserLeavesSomeToOthers) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be two other users";
  constexpr size_t kPlaces = 1024;
  rlimit files = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_max < 3 * kPlaces) GTEST_SKIP() << "this process may have too few files";
  const e2e::DaemonProcess daemon({"--socket-mode", "0666"});
  ASSERT_EQ(chmod(daemon.directory().c_str(), 0755), 0);
  Child greedy([&] {
    BecomeUser(kGreedy);
    std::vector<UniqueFd> places;
    // More than the limit; further connections are closed.
    while (places.size() < kPlaces + kPlaces / 4) places.push_back(*client::ConnectSocket(daemon.socket()));
    const std::string text = TextOf(Connect(daemon.socket()).status());
    if (text.find("user 54321 has 768 clients connected; 768 are allowed") == std::string::npos) _exit(101);
    raise(SIGSTOP);
  });
  int status = 0;
  ASSERT_EQ(waitpid(greedy.pid(), &status, WUNTRACED), greedy.pid());
  ASSERT_TRUE(WIFSTOPPED(status)) << WEXITSTATUS(status) << ", 101: it was not refused in words";
  Child other([&] {
    BecomeUser(kOther);
    std::vector<std::unique_ptr<Session>> sessions;
    for (int i = 0; i < 16; ++i) {
      auto session = Connect(daemon.socket());
      if (!session.ok() || !(*session)->DefaultQueue(0).Synchronize().ok()) _exit(102);
      sessions.push_back(*std::move(session));
    }
  });
  EXPECT_EQ(WEXITSTATUS(other.Wait()), 0) << "102: another user finds no place";
  EXPECT_TRUE(IsServed(daemon.socket())) << "the daemon's own user finds no place";
}

}  // namespace
}  // namespace xpud::isolation
