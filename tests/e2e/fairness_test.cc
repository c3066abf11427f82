// How sessions and tenants share one device's time, measured in elements that their commands computed, so
// that the machine's momentary speed does not matter.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/e2e/as_user.h"
#include "tests/e2e/daemon_process.h"
#include "xpud/tensor.h"

namespace xpud::e2e {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Seconds = std::chrono::duration<double>;

constexpr double kLightSeconds = 200e-6;
constexpr int64_t kRatio = 10;
constexpr milliseconds kWarmUp{200}, kAlone{300}, kBoth{600};
constexpr int kRounds = 5;

// The executor process of the CPU device competes for the cores, so a command's duration is not its cost.
bool DurationsAreCosts() {
  const char* const flags = std::getenv("XPUD_TEST_DAEMON_FLAGS");
  return flags == nullptr || std::strstr(flags, "cuda") != nullptr;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A session that always has a few commands of one cost queued.
class Flood {
 public:
  Flood(const DaemonProcess& daemon, int64_t elements)
      : session_(daemon.Connect("flood")),
        queue_(session_->DefaultQueue(0)),
        tensor_(*Tensor::Empty(queue_, ops::DType::kFloat32, {elements})) {
    const TensorRef out = tensor_.ref(), in[] = {TensorRef::Immediate(0.5), TensorRef::Immediate(1.0)};
    OpCall call;
    call.row = &ops::RowOf("mul.Tensor");
    call.compute = tensor_.dtype();
    call.outputs = {&out, 1};
    call.inputs = in;
    EXPECT_TRUE(queue_.Execute(call).ok());
  }

  // Returns commands per second.
  double Run(milliseconds time) {
    std::deque<Event> waiting;
    int64_t done = 0;
    const Clock::time_point begin = Clock::now();
    while (Clock::now() - begin < time) {
      for (int i = 0; i < kTogether; ++i) Send();
      waiting.push_back(*queue_.Record());
      if (waiting.size() < kAhead) continue;
      EXPECT_TRUE(waiting.front().Synchronize().ok());
      waiting.pop_front();
      done += kTogether;
    }
    const double rate = static_cast<double>(done) / Seconds(Clock::now() - begin).count();
    EXPECT_TRUE(queue_.Synchronize().ok());
    return rate;
  }

 private:
  static constexpr int kTogether = 4;
  static constexpr size_t kAhead = 16;

  void Send() {
    const TensorRef out = tensor_.ref(), in = tensor_.ref();
    OpCall call;
    call.row = &ops::RowOf("tanh");
    call.compute = tensor_.dtype();
    call.outputs = {&out, 1};
    call.inputs = {&in, 1};
    EXPECT_TRUE(queue_.Execute(call).ok());
  }

  std::unique_ptr<Session> session_;
  Queue queue_;
  Tensor tensor_;
};

// Returns how many elements take kLightSeconds.
int64_t LightElements(const DaemonProcess& daemon) {
  int64_t elements = 1 << 18;
  for (int round = 0; round < 3; ++round) {
    Flood flood(daemon, elements);
    flood.Run(kWarmUp);
    elements = std::max<int64_t>(
        1024, static_cast<int64_t>(static_cast<double>(elements) * kLightSeconds * flood.Run(kAlone)));
  }
  return elements;
}

TEST(Fairness, CommandsThatCostTenToOneGetEqualTime) {
  const DaemonProcess daemon;
  const int64_t elements = LightElements(daemon);
  Flood light(daemon, elements), heavy(daemon, elements * kRatio);
  light.Run(kWarmUp);
  heavy.Run(kWarmUp);
  std::vector<double> shares;
  for (int round = 0; round < kRounds; ++round) {
    double light_rate = 0;
    std::thread other([&] { light_rate = light.Run(kBoth); });
    const double heavy_rate = heavy.Run(kBoth);
    other.join();
    shares.push_back(heavy_rate * kRatio / (heavy_rate * kRatio + light_rate));
    std::printf("%.0f light and %.0f heavy commands a second: the heavy ones have %.1f%% of the time\n",
                light_rate, heavy_rate, 100 * shares.back());
  }
  if (!DurationsAreCosts()) return;
  EXPECT_GT(Median(shares), 0.35);
  EXPECT_LT(Median(shares), 0.65);
}

TEST(Fairness, AUserWithThreeSessionsGetsNoMoreThanAUserWithOne) {
  if (getuid() != 0) GTEST_SKIP() << "needs root, to connect as two users";
  if (std::getenv("XPUD_TEST_REMOTE") != nullptr) GTEST_SKIP() << "users of this machine";
  const DaemonProcess daemon({"--socket-mode", "0666"});
  ASSERT_EQ(chmod(daemon.directory().c_str(), 0711), 0);
  const int64_t elements = LightElements(daemon);
  std::vector<std::unique_ptr<Flood>> floods;
  for (const uid_t user : {61'001, 61'002, 61'002, 61'002})
    floods.push_back(As(user, [&] { return std::make_unique<Flood>(daemon, elements); }));
  for (const auto& flood : floods) flood->Run(kWarmUp);
  std::vector<double> shares;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> rates(floods.size());
    std::vector<std::thread> others;
    for (size_t i = 1; i < floods.size(); ++i)
      others.emplace_back([&, i] { rates[i] = floods[i]->Run(kBoth); });
    rates[0] = floods[0]->Run(kBoth);
    for (std::thread& other : others) other.join();
    shares.push_back(rates[0] / (rates[0] + rates[1] + rates[2] + rates[3]));
    std::printf("the user with one session has %.1f%% of the time\n", 100 * shares.back());
  }
  if (!DurationsAreCosts()) return;
  EXPECT_GT(Median(shares), 0.35);
  EXPECT_LT(Median(shares), 0.65);
}

}  // namespace
}  // namespace xpud::e2e
