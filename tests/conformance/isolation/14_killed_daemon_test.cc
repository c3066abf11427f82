// A daemon that is killed: every client gets an error, and the next daemon starts at the same socket.
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "tests/conformance/isolation/isolation_test.h"
#include "xpud/tensor.h"

namespace xpud::isolation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Exit statuses of a client that computes until its daemon is gone.
constexpr int kToldSo = 0, kWrong = 1, kOtherError = 2, kNoSession = 3, kStatusDiffers = 4;

int ComputeUntilTheEnd(const std::string& socket) {
  ConnectOptions options;
  options.address = socket;
  auto session = Session::Connect(options);
  if (!session.ok())
    return absl::IsUnavailable(session.status()) || absl::IsNotFound(session.status()) ? kToldSo : kNoSession;
  const std::vector<float> values(1 << 14, 3);
  absl::StatusOr<std::vector<float>> result = values;
  while (result.ok()) {
    const auto x = Tensor::FromHost((*session)->DefaultQueue(0), std::span<const float>(values), {1 << 14});
    const auto doubled = x.ok() ? Mul(*x, 2.0) : x;
    result = doubled.ok() ? doubled->ToFloats() : absl::StatusOr<std::vector<float>>(doubled.status());
    if (result.ok() && (*result)[77] != 6) return kWrong;
  }
  if (!absl::IsUnavailable(result.status())) return kOtherError;
  return absl::IsUnavailable((*session)->status()) ? kToldSo : kStatusDiffers;
}

void KillAgainAndAgain(const std::vector<std::string>& flags, int rounds) {
  e2e::DaemonProcess daemon(flags);
  std::minstd_rand random(14);
  milliseconds longest{0};
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::unique_ptr<Child>> clients;
    for (int i = 0; i < 3; ++i)
      clients.push_back(std::make_unique<Child>([&] { _exit(ComputeUntilTheEnd(daemon.socket())); }));
    const int64_t executor = daemon.StatusOf("executor_pid");
    std::this_thread::sleep_for(milliseconds(random() % 100));
    daemon.Kill();
    const auto killed = std::chrono::steady_clock::now();
    for (auto& client : clients) EXPECT_EQ(WEXITSTATUS(client->Wait()), kToldSo);
    longest = std::max(longest,
                       std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - killed));
    if (executor > 0)
      EXPECT_TRUE(e2e::Within(seconds(5), [&] { return !IsAlive(static_cast<pid_t>(executor)); }));
    daemon.Restart();
  }
  std::printf("[ figures  ] %d daemons killed; every client was told within %d ms\n", rounds,
              static_cast<int>(longest.count()));
  EXPECT_LT(longest, seconds(1));
  Innocent(daemon.socket()).ExpectUnharmed();
}

TEST(KilledDaemon, EndsEveryCallAndTheNextOneServesAtTheSameSocket) {
  KillAgainAndAgain({}, InFull() ? 200 : 25);
}

TEST(KilledDaemon, TakesItsExecutorsAlong) {
  KillAgainAndAgain({"--executor", "process"}, InFull() ? 100 : 10);
}

}  // namespace
}  // namespace xpud::isolation
