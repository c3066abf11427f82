// Clients that copy between two devices, and are killed at any place.
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "tests/conformance/isolation/isolation_test.h"
#include "xpud/xpud.h"

namespace xpud::isolation {
namespace {

constexpr uint64_t kBytes = 1 << 20;
constexpr int kSteps = 5;

// What a client and the test have in common.
struct State {
  std::atomic<int> reached, stay_at;

  void Pass() {
    if (++reached == stay_at) pause();
  }
};

// A client that never ends by itself: sources that are freed and overwritten at once, both ways.
void Live(const std::string& address, State& state) {
  ConnectOptions options;
  options.address = address;
  const auto session = Session::Connect(options);
  if (!session.ok()) return;
  const Queue queues[] = {(*session)->DefaultQueue(0), (*session)->DefaultQueue(1)};
  const std::vector<std::byte> ones(kBytes, std::byte{1}), twos(kBytes, std::byte{2});
  Buffer kept = *queues[0].Allocate(kBytes);
  (void)queues[0].Upload(ones, kept.handle(), 0);
  state.Pass();
  for (int round = 0;; ++round) {
    Buffer there = *queues[1].Allocate(kBytes);
    (void)queues[1].CopyFrom(queues[0], kept.handle(), 0, there.handle(), 0, kBytes);
    if (round == 0) state.Pass();  // a copy is under way
    (void)queues[0].Upload(twos, kept.handle(), 0);
    if (round == 0) state.Pass();  // and what overwrites its source
    Buffer back = *queues[0].Allocate(kBytes);
    (void)queues[0].CopyFrom(queues[1], there.handle(), 0, back.handle(), 0, kBytes);
    there.Free();
    if (round == 0) state.Pass();  // a freed source
    kept = std::move(back);
    if (round == 20) state.Pass();
  }
}

class Peers : public Isolation {
 protected:
  explicit Peers(std::vector<std::string> flags = {})
      : Isolation([&] {
          flags.insert(flags.end(), {"--device", "cpu", "--test-devices", "2"});
          return flags;
        }()),
        state_(*static_cast<State*>(
            mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Peers() override { munmap(&state_, sizeof(State)); }

  // Half of them at their place, half of them at any moment.
  void KillSome(int count) {
    for (int i = 0; i < count; ++i) {
      const bool stays = i % 2 == 0;
      state_.reached = 0;
      state_.stay_at = stays ? i / 2 % kSteps + 1 : 1000;
      Child client([&] { Live(socket(), state_); });
      if (stays) {
        ASSERT_TRUE(e2e::Within(std::chrono::seconds(20), [&] { return state_.reached == state_.stay_at; }));
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(random_() % 20'000));
      }
      client.Kill();
    }
  }
  void KillThem() {
    KillSome(4 * kSteps);
    ASSERT_TRUE(e2e::Within(std::chrono::seconds(20),
                            [&] { return daemon_.StatusOf("memory_used_bytes") == before_.memory_used; }));
    before_ = Vitals::Of(daemon_);
    KillSome(InFull() ? 10'000 : 200);
    ExpectAsBefore();
  }

  State& state_;
  std::minstd_rand random_{33};
};

class PeersOfExecutors : public Peers {
 protected:
  PeersOfExecutors() : Peers({"--executor", "process"}) {}
};

TEST_F(Peers, ThatAreKilledLeaveNothing) { KillThem(); }
TEST_F(PeersOfExecutors, ThatAreKilledLeaveNothing) { KillThem(); }

}  // namespace
}  // namespace xpud::isolation
