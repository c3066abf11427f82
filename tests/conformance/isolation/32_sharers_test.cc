// Clients that share memory, and are killed at any place.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "tests/conformance/isolation/commands.h"
#include "tests/conformance/isolation/isolation_test.h"
#include "tests/e2e/floats.h"
#include "xpud/tensor.h"

namespace xpud::isolation {
namespace {

constexpr uint64_t kBytes = 1 << 16;
constexpr int kSteps = 8, kNowhere = 1000;

// What a client and the test have in common.
struct State {
  std::atomic<int> reached, stay_at;
  std::atomic<bool> has_ticket;
  Ticket ticket;     // of memory in which every number is 1
  Ticket others[2];  // of the same memory; the client may have used them

  void Pass() {
    if (++reached == stay_at) pause();
  }
};

absl::Status TimesOne(const Queue& queue, const Buffer& buffer) {
  return e2e::ExecuteInPlace(queue, buffer, "mul.Tensor", {1});
}

// A client with two sessions, which never ends by itself.
void Live(const std::string& address, State& state) {
  ConnectOptions options;
  options.address = address;
  const auto sender = Session::Connect(options), receiver = Session::Connect(options);
  if (!sender.ok() || !receiver.ok()) return;
  const Queue queue = (*sender)->DefaultQueue(0), theirs = (*receiver)->DefaultQueue(0);
  Buffer buffer = *queue.Allocate(kBytes);
  const std::vector<float> ones(kBytes / sizeof(float), 1);
  (void)queue.Upload(std::as_bytes(std::span(ones)), buffer.handle(), 0);
  state.Pass();
  for (int i = 0; i < 20; ++i) (void)TimesOne(queue, buffer);
  state.Pass();  // computes
  const auto kept = (*sender)->Share(buffer), taken = (*sender)->Share(buffer),
             returned = (*sender)->Share(buffer);
  if (!kept.ok() || !taken.ok() || !returned.ok()) return;
  state.Pass();  // nobody has its tickets
  state.ticket = *kept;
  state.others[0] = *taken;
  state.others[1] = *returned;
  state.has_ticket = true;
  state.Pass();
  auto attached = (*receiver)->Attach(*taken);
  if (!attached.ok()) return;
  state.Pass();
  for (int i = 0; i < 20; ++i) {
    (void)TimesOne(queue, buffer);
    (void)TimesOne(theirs, *attached);
  }
  state.Pass();  // both compute on it
  buffer.Free();
  (void)(*receiver)->ReturnTicket(*returned);
  state.Pass();
  const TensorRef out[] = {TensorRef()}, nothing[] = {TensorRef(), TensorRef()};
  (void)theirs.Execute({&ops::RowOf("neg"), ops::DType::kFloat32, out, nothing, {}});
  state.Pass();  // has an error that it has not seen
  while (true) (void)TimesOne(theirs, *attached);
}

class Sharers : public Isolation {
 protected:
  Sharers()
      : state_(*static_cast<State*>(
            mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Sharers() override { munmap(&state_, sizeof(State)); }

  // Half of them at their place, half of them at any moment. Memory whose ticket has come is taken
  // afterwards.
  void KillSome(int count) {
    const auto receiver = daemon_.Connect("receiver");
    for (int i = 0; i < count; ++i) {
      const bool stays = i % 2 == 0;
      state_.reached = 0;
      state_.has_ticket = false;
      state_.stay_at = stays ? i / 2 % kSteps + 1 : kNowhere;
      Child client([&] { Live(socket(), state_); });
      if (stays) {
        ASSERT_TRUE(e2e::Within(std::chrono::seconds(20), [&] { return state_.reached == state_.stay_at; }));
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(random_() % 6000));
      }
      client.Kill();
      if (!state_.has_ticket) continue;
      Receive(*receiver);
      for (const Ticket& ticket : state_.others) (void)receiver->ReturnTicket(ticket);
    }
  }
  void Receive(Session& receiver) {
    auto buffer = receiver.Attach(state_.ticket);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    std::vector<float> values(kBytes / sizeof(float));
    const absl::Status read =
        receiver.DefaultQueue(0).Download(buffer->handle(), 0, std::as_writable_bytes(std::span(values)));
    ++received_;
    // A long command of a session that ends is not finished; then its error is read.
    if (read.ok())
      ASSERT_THAT(values, testing::Each(1));
    else
      ++errors_;
  }

  State& state_;
  std::minstd_rand random_{32};
  int received_ = 0, errors_ = 0;
};

TEST_F(Sharers, ThatAreKilledLeaveTheirMemoryToOthersOrNothing) {
  const int kKills = InFull() ? 10'000 : 500;
  KillSome(10 * kSteps);
  before_ = Vitals::Of(daemon_);
  before_.memory_used = 0;
  KillSome(kKills);
  std::printf("[ figures  ] %d kills, %d tickets taken afterwards, %d errors\n", kKills, received_, errors_);
  EXPECT_GT(received_, kKills / 10);
  EXPECT_LT(errors_, received_ / 2);
  // Tickets that nobody has taken end a minute after their sender.
  const int64_t innocents = kMiB * 2;
  EXPECT_TRUE(e2e::Within(std::chrono::seconds(70),
                          [&] { return daemon_.StatusOf("memory_used_bytes") < innocents; }));
  before_.memory_used = daemon_.StatusOf("memory_used_bytes");
  before_.sessions = 1;
  ExpectAsBefore({.resident = 4 * kMiB, .mappings = 32});
}

}  // namespace
}  // namespace xpud::isolation
