#include "daemon/telemetry/watchdog.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/mutex.h"

namespace xpud::telemetry {
namespace {

using std::chrono::milliseconds;

constexpr auto kExpected = milliseconds(90);

// A service manager's end: receives datagrams at an abstract socket.
class Manager {
 public:
  Manager() : socket_(socket(AF_UNIX, SOCK_DGRAM, 0)) {
    const std::string name = "xpud-watchdog-test-" + std::to_string(getpid());
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const size_t size = offsetof(sockaddr_un, sun_path) + 1 + name.size();
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(size)),
              0);
    const timeval limit = {.tv_sec = 0, .tv_usec = 5 * 90'000};
    EXPECT_EQ(setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    setenv("NOTIFY_SOCKET", ("@" + name).c_str(), 1);
  }
  // Returns the next datagram, or "" after five times kExpected.
  std::string Hear() const {
    std::array<char, 256> bytes;
    const ssize_t count = recv(socket_.get(), bytes.data(), bytes.size(), 0);
    return count < 0 ? "" : std::string(bytes.data(), static_cast<size_t>(count));
  }

 private:
  UniqueFd socket_;
};

Notifier FromEnvironment() {
  auto notifier = Notifier::FromEnvironment();
  EXPECT_TRUE(notifier.ok()) << notifier.status();
  return *std::move(notifier);
}

TEST(Watchdog, IsExpectedOfTheProcessThatIsMeant) {
  const Manager manager;
  const std::string address = std::getenv("NOTIFY_SOCKET");
  const auto expected = [&](const char* microseconds, const std::string& pid) {
    setenv("NOTIFY_SOCKET", address.c_str(), 1);
    setenv("WATCHDOG_USEC", microseconds, 1);
    setenv("WATCHDOG_PID", pid.c_str(), 1);
    return FromEnvironment().watchdog();
  };
  EXPECT_EQ(expected("90000", std::to_string(getpid())), kExpected);
  EXPECT_EQ(expected("90000", ""), kExpected);
  EXPECT_EQ(expected("90000", std::to_string(getppid())), std::nullopt);
  EXPECT_EQ(expected("0", ""), std::nullopt);
  EXPECT_EQ(expected("soon", ""), std::nullopt);
  EXPECT_EQ(std::getenv("WATCHDOG_USEC"), nullptr) << "a child would be taken for us";
}

TEST(Watchdog, IsFedWhileWhatItAsksAnswersAndOnlyThen) {
  const Manager manager;
  const Notifier notifier = FromEnvironment();
  Mutex mutex;
  std::function<void()> kept;  // an answer that is held back
  bool hangs = false;
  const auto watchdog = Watchdog::Start(notifier, kExpected, [&](std::function<void()> done) {
    MutexLock lock(mutex);
    if (hangs)
      kept = std::move(done);
    else
      done();
  });
  for (int i = 0; i < 5; ++i) EXPECT_EQ(manager.Hear(), "WATCHDOG=1");
  {
    MutexLock lock(mutex);
    hangs = true;
  }
  for (int on_their_way = 0; on_their_way < 3 && !manager.Hear().empty();) ++on_their_way;
  EXPECT_EQ(manager.Hear(), "");
  {
    MutexLock lock(mutex);
    hangs = false;
    ASSERT_TRUE(kept);
    kept();
  }
  EXPECT_EQ(manager.Hear(), "WATCHDOG=1");
}

TEST(Watchdog, EndsWithoutAnAnswerThatMayComeLater) {
  const Notifier nobody;
  std::function<void()> kept;
  {
    Mutex mutex;
    CondVar asked;
    const auto watchdog = Watchdog::Start(nobody, kExpected, [&](std::function<void()> done) {
      MutexLock lock(mutex);
      kept = std::move(done);
      asked.NotifyOne();
    });
    MutexLock lock(mutex);
    while (!kept) asked.Wait(mutex);
  }
  kept();
}

}  // namespace
}  // namespace xpud::telemetry
