// A wall clock that jumps, and a monotonic clock far in the future. A test must not set the machine's wall
// clock, so the daemon gets one of its own (jumping_clock.cc), and a time namespace.
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "sdk/client/connect.h"
#include "tests/conformance/isolation/isolation_test.h"
#include "xpud/tensor.h"

namespace xpud::isolation {
namespace {

using std::chrono::seconds;

// Everything that a wall clock could disturb: waiting, sleeping, time limits, the control plane, timestamps,
// the end of clients and of the daemon.
void LiveForAWhile(const e2e::DaemonProcess& daemon) {
  {
    Innocent innocent(daemon.socket());
    const Vitals before = Vitals::Of(daemon);
    EXPECT_EQ(before.sessions, 1);
    UniqueFd silent = *client::ConnectSocket(daemon.socket());
    {
      const auto session = daemon.Connect();
      const Queue queue = session->DefaultQueue(0);
      const Event start = *queue.Record(/*timing=*/true);
      std::this_thread::sleep_for(seconds(2));  // it sleeps
      const Event end = *queue.Record(/*timing=*/true);
      EXPECT_TRUE(end.Synchronize().ok());
      EXPECT_NEAR(static_cast<double>(*end.ElapsedNanoseconds(start)), 2e9, 1e9);
    }
    char byte;
    EXPECT_TRUE(e2e::Within(seconds(10), [&] { return recv(silent.get(), &byte, 1, MSG_DONTWAIT) == 0; }))
        << "it is dropped after 5 s";
    for (int i = 0; i < 20; ++i) EXPECT_GE(daemon.StatusOf("uptime_ns"), 0);
    EXPECT_LT(daemon.StatusOf("uptime_ns"), 60'000'000'000);
    innocent.ExpectUnharmed();
    EXPECT_EQ(Vitals::Of(daemon).sessions, before.sessions);
  }
  int status = -1;
  const pid_t pid = daemon.pid();
  EXPECT_TRUE(e2e::Within(seconds(10), [&] { return waitpid(pid, &status, WNOHANG) == pid; }))
      << "it ends a second after its last client";
  EXPECT_EQ(status, 0) << daemon.Log();
}

// Returns the years of the daemon's log lines.
std::set<std::string> YearsOf(const std::string& log) {
  std::set<std::string> years;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) years.insert(line.substr(0, 4));
  return years;
}

std::filesystem::path JumpingClock() {
  return std::filesystem::path(e2e::DaemonBinary()).parent_path() / "../lib/libjumping_clock.so";
}

void LiveWithAJumpingClock(const std::vector<std::string>& flags) {
  const auto library = JumpingClock();
  ASSERT_TRUE(std::filesystem::exists(library));
  setenv("LD_PRELOAD", library.c_str(), 1);
  const e2e::DaemonProcess daemon(flags);
  unsetenv("LD_PRELOAD");
  for (int i = 0; i < 20; ++i) daemon.Connect();
  EXPECT_GT(YearsOf(daemon.Log()).size(), 5u) << "the daemon's clock does not jump";
  LiveForAWhile(daemon);
}

TEST(Clock, OfTheWallMayJump) { LiveWithAJumpingClock({"--exit-when-idle", "1"}); }

TEST(Clock, OfTheWallMayJumpForExecutorsToo) {
  LiveWithAJumpingClock({"--exit-when-idle", "1", "--executor", "process", "--command-limit", "2000"});
}

TEST(Clock, OfTheWallMayJumpForXpuctl) {
  const e2e::DaemonProcess daemon;
  const auto ask = [&](std::string& answer) {
    setenv("LD_PRELOAD", JumpingClock().c_str(), 1);
    const int result = daemon.Ask("status", answer);
    unsetenv("LD_PRELOAD");
    return result;
  };
  std::string answer;
  for (int i = 0; i < 20; ++i) ASSERT_EQ(ask(answer), 0) << answer;
  e2e::SignalProcess(daemon.pid(), SIGSTOP);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_NE(ask(answer), 0);
  const auto took = std::chrono::steady_clock::now() - start;
  e2e::SignalProcess(daemon.pid(), SIGCONT);
  EXPECT_GT(took, seconds(4)) << "its limit is 5 s";
  EXPECT_LT(took, seconds(15));
}

TEST(Clock, OfAMachineThatHasRunForYearsIsAClockToo) {
  Child later([] {
    if (unshare(CLONE_NEWTIME) != 0) _exit(77);
    constexpr long kHundredYears = 100L * 365 * 24 * 3600;
    std::ofstream offsets("/proc/self/timens_offsets");
    offsets << "monotonic " << kHundredYears << " 0\nboottime " << kHundredYears << " 0\n" << std::flush;
    if (!offsets) _exit(78);
    Child in_namespace([] {  // only children are in it
      LiveForAWhile(e2e::DaemonProcess({"--exit-when-idle", "1"}));
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    });
    _exit(WEXITSTATUS(in_namespace.Wait()));
  });
  const int status = WEXITSTATUS(later.Wait());
  if (status == 77) GTEST_SKIP() << "only root can make a time namespace";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace xpud::isolation
