// Many daemons on one socket: one serves; the others report that and end, without disturbing it.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/conformance/isolation/isolation_test.h"

namespace xpud::isolation {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr int kDaemons = 6;

class TwoDaemons : public ::testing::Test {
 protected:
  TwoDaemons() {
    char pattern[] = "/tmp/xpud-two-XXXXXX";
    directory_ = mkdtemp(pattern);
    socket_ = directory_ + "/xpud.sock";
  }
  ~TwoDaemons() override {
    daemons_.clear();
    std::filesystem::remove_all(directory_);
  }
  std::string LogOf(size_t i) const { return directory_ + "/log" + std::to_string(i); }
  void StartAll() {
    daemons_.clear();
    for (size_t i = 0; i < kDaemons; ++i) {
      daemons_.push_back(std::make_unique<Child>([&] {
        const int log = open(LogOf(i).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(log, 1), dup2(log, 2);
        const std::string binary = e2e::DaemonBinary(), cache = directory_ + "/cache";
        execl(binary.c_str(), binary.c_str(), "--socket", socket_.c_str(), "--device", "cpu", "--cache-dir",
              cache.c_str(), nullptr);
        _exit(127);
      }));
    }
  }
  // Returns the number of the daemon that serves when all others have ended; -1 if that does not happen.
  int AwaitWinner() {
    int winner = -1;
    e2e::Within(seconds(20), [&] {
      int alive = 0;
      for (size_t i = 0; i < kDaemons; ++i) {
        if (!IsAlive(daemons_[i]->pid())) continue;
        ++alive;
        winner = static_cast<int>(i);
      }
      return alive == 1;
    });
    int alive = 0;
    for (const auto& daemon : daemons_) alive += IsAlive(daemon->pid());
    return alive == 1 ? winner : -1;
  }
  bool Connects() {
    ConnectOptions options;
    options.address = socket_;
    return Session::Connect(options).ok();
  }

  std::string directory_, socket_;
  std::vector<std::unique_ptr<Child>> daemons_;
};

TEST_F(TwoDaemons, OnlyOneServesAndTheOthersLeaveItAlone) {
  const int rounds = InFull() ? 50 : 5;
  for (int round = 0; round < rounds; ++round) {
    StartAll();  // with the files that a killed daemon has left
    const int winner = AwaitWinner();
    ASSERT_GE(winner, 0);
    ASSERT_TRUE(e2e::Within(seconds(10), [&] { return Connects(); }));
    for (size_t i = 0; i < kDaemons; ++i) {
      if (static_cast<int>(i) == winner) continue;
      EXPECT_NE(WEXITSTATUS(daemons_[i]->Wait()), 0);
      std::ifstream log(LogOf(i));
      const std::string text{std::istreambuf_iterator<char>(log), {}};
      EXPECT_THAT(text, HasSubstr("another xpud daemon serves"));
    }
    Innocent innocent(socket_);
    innocent.ExpectUnharmed();
    // A later one too.
    Child late([&] {
      const int null = open("/dev/null", O_WRONLY);
      dup2(null, 1), dup2(null, 2);
      const std::string binary = e2e::DaemonBinary();
      execl(binary.c_str(), binary.c_str(), "--socket", socket_.c_str(), "--device", "cpu", nullptr);
    });
    EXPECT_NE(WEXITSTATUS(late.Wait()), 0);
    EXPECT_TRUE(Connects());
    innocent.ExpectUnharmed();
    daemons_[static_cast<size_t>(winner)]->Kill();
  }
}

}  // namespace
}  // namespace xpud::isolation
