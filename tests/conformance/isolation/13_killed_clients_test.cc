// Thousands of clients that are killed at any place.
#include <sys/mman.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "sdk/client/connect.h"
#include "tests/conformance/isolation/commands.h"
#include "tests/conformance/isolation/isolation_test.h"
#include "xpud/tensor.h"

namespace xpud::isolation {
namespace {

using std::chrono::microseconds;

// The place that a client has reached, and the place where it must stay, in memory shared with the test.
class Milestones {
 public:
  static constexpr int kNowhere = 1000;

  Milestones()
      : state_(static_cast<State*>(
            mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Milestones() { munmap(state_, sizeof(State)); }
  void Begin(int stay_at) { state_->reached = 0, state_->stay_at = stay_at; }
  void Pass() {
    if (++state_->reached == state_->stay_at) pause();
  }
  int reached() const { return state_->reached; }

 private:
  struct State {
    std::atomic<int> reached, stay_at;
  };
  State* const state_;
};

constexpr int kMilestones = 10;

// A client that uses many features and never ends by itself.
void Live(const std::string& address, Milestones& milestones) {
  UniqueFd silent = ConnectTo(address);
  milestones.Pass();  // connected, and has not sent a Hello
  HostileSession raw(address, "victim");
  milestones.Pass();
  raw.Put(Allocate({1, 1}, 1 << 20));
  raw.Put(Upload({1, 1}, 0, {0, 0, 0}, 1 << 20));
  raw.PublishUpTo(raw.tail());
  milestones.Pass();  // has a session with work
  ConnectOptions options;
  options.address = address;
  auto session = Session::Connect(options);
  if (!session.ok()) return;
  const Queue queue = (*session)->DefaultQueue(0);
  milestones.Pass();
  const std::vector<float> values(1 << 16, 1);
  Tensor x = *Tensor::FromHost(queue, std::span<const float>(values), {1 << 16});
  milestones.Pass();
  for (int i = 0; i < 20; ++i) x = *Mul(x, 1.0);
  milestones.Pass();  // computes
  auto host = (*session)->AllocateHost(1 << 16);
  milestones.Pass();  // shares memory, where there is no network between
  auto second = (*session)->CreateQueue(0);
  (void)second->Wait(*queue.Record());
  milestones.Pass();  // one queue waits for the other
  const TensorRef out = x.ref(), nothing[] = {x.ref(), x.ref()};
  (void)queue.Execute({&ops::RowOf("neg"), ops::DType::kFloat32, {&out, 1}, nothing, {}});
  milestones.Pass();  // has an error that it has not seen
  if (host.ok()) (void)queue.StartUpload(host->bytes(), (*queue.Allocate(1 << 16)).handle(), 0);
  raw.PublishUpTo(raw.tail() + 64);
  milestones.Pass();  // one of its sessions broke the protocol
  while (true) x = *Mul(x, 1.0);
}

class KilledClients : public Isolation {
 protected:
  // Half of them at their place, half of them at any moment.
  void KillSome(int count) {
    Milestones milestones;
    for (int i = 0; i < count; ++i) {
      const bool stays = i % 2 == 0;
      const int stay_at = i / 2 % kMilestones + 1;
      milestones.Begin(stays ? stay_at : Milestones::kNowhere);
      Child client([&] { Live(socket(), milestones); });
      if (stays) {
        ASSERT_TRUE(e2e::Within(std::chrono::seconds(20), [&] { return milestones.reached() == stay_at; }));
      } else {
        std::this_thread::sleep_for(microseconds(random_() % 4000));
      }
      client.Kill();
    }
  }
  std::minstd_rand random_{13};
};

TEST_F(KilledClients, LeaveNothingBehind) {
  const int kKills = IsRemote() ? 200
                     : InFull() ? 10'000
                                : 1000;  // a remote client has three processes of xpud-connect
  KillSome(10 * kMilestones);
  ExpectAsBefore();
  before_ = Vitals::Of(daemon_);
  innocent_.TakeLongestMs();
  const auto begin = std::chrono::steady_clock::now();
  KillSome(kKills);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const std::vector<double> times = innocent_.TakeRoundTimes();
  std::printf(
      "[ figures  ] %d kills in %.1f s; the innocent client's rounds: p50 %.2f ms, p99 %.2f, longest %.2f\n",
      kKills, took.count(), Percentile(times, 50) / 1000, Percentile(times, 99) / 1000,
      Percentile(times, 100) / 1000);
  ExpectAsBefore({.resident = 2 * kMiB, .mappings = 32});
}

}  // namespace
}  // namespace xpud::isolation
