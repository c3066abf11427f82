// How much longer others wait beside a client that floods. Measured in turns: in quiet, beside a process that
// computes without the daemon, and beside the flood. A flood keeps the lane busy, so it takes a core from
// the others, as any program does; only the delay beyond that counts.
#include <thread>

#include "tests/conformance/isolation/isolation_test.h"
#include "tests/conformance/isolation/op_calls.h"

namespace xpud::isolation {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// The required bound is 2. On a shared machine, the test fails only far beyond it.
constexpr double kBound = 2, kFarBeyond = 5;

// A process that runs while it is allowed to.
class Beside {
 public:
  explicit Beside(const std::function<void()>& body) : child_(body) { Stop(); }
  void Stop() { child_.Signal(SIGSTOP); }
  void Go() { child_.Signal(SIGCONT); }

 private:
  Child child_;
};

void Compute() {
  for (volatile uint64_t i = 0;; i = i + 1) {
  }
}

class Flooded : public Isolation {
 protected:
  // Returns the p99 of the innocent client's rounds beside the flood, relative to its p99 beside a busy
  // process; the median of several rounds.
  double Ratio(const char* what, const std::vector<std::vector<std::byte>>& commands, Innocent& innocent) {
    Beside flood([&] { Flood(commands); }), busy(Compute);
    std::vector<double> quiet, beside_busy, flooded, ratios;
    const int rounds = InFull() ? 15 : 5;
    for (int round = 0; round < rounds; ++round) {
      quiet.push_back(P99(innocent));
      beside_busy.push_back(P99Beside(busy, innocent));
      flooded.push_back(P99Beside(flood, innocent));
      ratios.push_back(flooded.back() / beside_busy.back());
    }
    const double ratio = Percentile(ratios, 50);
    std::printf(
        "[ figures  ] %s: p99 %.0f us; %.0f us beside a busy process, %.0f us beside the flood; ratio %.2f "
        "(%.2f to "
        "%.2f), bound %.0f%s; %.2f of quiet\n",
        what, Percentile(quiet, 50), Percentile(beside_busy, 50), Percentile(flooded, 50), ratio,
        Percentile(ratios, 0), Percentile(ratios, 100), kBound, ratio > kBound ? ": missed" : "",
        Percentile(flooded, 50) / Percentile(quiet, 50));
    return ratio;
  }

 private:
  // Fills its ring with `commands`.
  void Flood(const std::vector<std::vector<std::byte>>& commands) {
    HostileSession session(socket(), "flood");
    PutOperands(session);
    for (size_t i = 0; !session.closed(); ++i) {
      session.Put(commands[i % commands.size()]);
      if (i % 256 == 0) session.Publish();
    }
  }
  static double P99(Innocent& innocent) {
    std::this_thread::sleep_for(milliseconds(50));  // lets work in flight finish
    innocent.TakeRoundTimes();
    std::this_thread::sleep_for(milliseconds(400));
    return Percentile(innocent.TakeRoundTimes(), 99);
  }
  static double P99Beside(Beside& other, Innocent& innocent) {
    other.Go();
    const double p99 = P99(innocent);
    other.Stop();
    return p99;
  }
};

template <typename Command>
std::vector<std::byte> BytesOf(const Command& command) {
  const auto bytes = std::as_bytes(std::span(&command, 1));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> Small() { return RightCall(ops::RowOf("add.Tensor")).bytes(); }

std::vector<std::byte> Erroneous() {
  Call call = RightCall(ops::RowOf("add.Tensor"));
  call.inputs[0].buffer = {999, 1};
  return call.bytes();
}

TEST_F(Flooded, WorkIsSlowedByLittleMoreThanAFairShare) {
  e2e::SignalProcess(innocent_.pid(), SIGSTOP);  // a small flood itself
  Innocent worker(socket(), Innocent::kLarge, "worker", std::chrono::microseconds(0));
  const View large = TensorView({1, 1}, {1 << 22}, ops::DType::kFloat32, 0, {0});
  const View out = TensorView({2, 1}, {1});
  const std::vector<std::pair<const char*, std::vector<std::vector<std::byte>>>> floods = {
      {"no-ops", {BytesOf(wire::NopCommand{wire::Header(wire::CommandKind::kNop, 0, 8)})}},
      {"small ops", {Small()}},
      {"errors", {Erroneous()}},
      {"large ops", {Execute(ops::RowOf("amax"), ops::DType::kFloat32, {&out, 1}, {&large, 1})}}};
  for (const auto& [what, commands] : floods) EXPECT_LT(Ratio(what, commands, worker), kFarBeyond) << what;
  worker.ExpectUnharmed();
  e2e::SignalProcess(innocent_.pid(), SIGCONT);
}

}  // namespace
}  // namespace xpud::isolation
