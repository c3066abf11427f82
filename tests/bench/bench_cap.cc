// What a claim of `--time ..30%` gets alone on the device, in each second: the device time that the daemon
// charged, and the commands that were completed, over those of the same claim without a limit. Against a
// running daemon ($XPUD_ADDRESS).
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/bench/claimed_work.h"

namespace xpud::bench {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr uint32_t kMost = 3'000;  // hundredths of a per cent

class Capped {
 public:
  explicit Capped(const Work& work) : claim_(Named("capped")) {
    sessions_.push_back(std::make_unique<BusySession>(claim_.socket(), work));
  }
  GrantedClaim& claim() { return claim_; }
  void Work(int64_t ns) { FillUntil(sessions_, NowNs() + ns); }

  // Since the last call.
  struct Part {
    double time = 0;      // of the device's, in per cent
    double commands = 0;  // a second
  };
  Part Take() {
    const GrantedClaim::DeviceTime charged = claim_.Charged();
    const uint64_t completed = sessions_[0]->Completed();
    const auto passed_ns = static_cast<double>(charged.now_ns - last_.now_ns);
    const Part part = {.time = static_cast<double>(charged.busy_ns - last_.busy_ns) / passed_ns * 100,
                       .commands = static_cast<double>(completed - last_completed_) / passed_ns * kSecondNs};
    last_ = charged, last_completed_ = completed;
    return part;
  }

 private:
  static v1::Claim Named(const char* key) {
    v1::Claim claim;
    claim.set_key(key);
    return claim;
  }

  GrantedClaim claim_;
  std::vector<std::unique_ptr<BusySession>> sessions_;
  GrantedClaim::DeviceTime last_;
  uint64_t last_completed_ = 0;
};

void Report(const char* what, const std::vector<double>& seconds, bool counts) {
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  const auto target = [&](bool at_least, double limit) {
    return counts ? std::optional(Row::Target{.at_least = at_least, .limit = limit}) : std::nullopt;
  };
  Emit({.name = std::string("..30% alone, ") + what + ", least of a second",
        .value = *least,
        .unit = "%",
        .target = target(true, 28)});
  Emit({.name = std::string("..30% alone, ") + what + ", most of a second",
        .value = *most,
        .unit = "%",
        .target = target(false, 30)});
}

int Main() {
  const int seconds = Smoke() ? 1 : 10;
  Capped capped(SmallestWork(OnGpu() ? Work::Kind::kProducts : Work::Kind::kSums));
  capped.Work(kSecondNs / 2);
  (void)capped.Take();
  capped.Work((Smoke() ? 1 : 5) * kSecondNs);
  const double whole = capped.Take().commands;
  capped.claim().SetTimeMost(kMost);
  capped.Work(kSecondNs);
  (void)capped.Take();
  std::vector<double> time, work;
  for (int i = 0; i < seconds; ++i) {
    capped.Work(kSecondNs);
    const Capped::Part part = capped.Take();
    time.push_back(part.time);
    work.push_back(part.commands / whole * 100);
  }
  Report("device time", time, /*counts=*/true);
  Report("work over without a limit", work, /*counts=*/false);
  return 0;
}

}  // namespace
}  // namespace xpud::bench

int main() { return xpud::bench::Main(); }
