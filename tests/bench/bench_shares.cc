// What claims get of a device, as work done: the commands that they completed in each window of 200 ms, while
// all always have some queued. The first claim of each case has eight sessions, the others have one. Against
// a running daemon ($XPUD_ADDRESS).
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/bench/claimed_work.h"

namespace xpud::bench {
namespace {

constexpr int64_t kWindowNs = 200'000'000, kSettleNs = 1'000'000'000;
constexpr int kSessionsOfFirst = 8;
constexpr double kWindowPoints = 2;

// Of each claim.
using Counts = std::vector<uint64_t>;

// The claims of a case, and their sessions.
class Contest {
 public:
  Contest(const std::vector<uint32_t>& weights, const Work& work) {
    for (const uint32_t weight : weights) {
      v1::Claim claim;
      claim.set_key(absl::StrCat("share-", weight));
      claim.set_weight(weight);
      claims_.push_back(std::make_unique<GrantedClaim>(claim));
      const int sessions = claims_.size() == 1 ? kSessionsOfFirst : 1;
      for (int i = 0; i < sessions; ++i) {
        sessions_.push_back(std::make_unique<BusySession>(claims_.back()->socket(), work));
        claim_of_.push_back(claims_.size() - 1);
      }
    }
  }

  void Fill(int64_t until_ns) { FillUntil(sessions_, until_ns); }
  Counts Completed() {
    Counts counts(claims_.size());
    for (size_t i = 0; i < sessions_.size(); ++i) counts[claim_of_[i]] += sessions_[i]->Completed();
    return counts;
  }
  // The device time that the daemon has charged to each claim.
  Counts ChargedNs() {
    Counts charged;
    for (const auto& claim : claims_) charged.push_back(claim->Charged().busy_ns);
    return charged;
  }

 private:
  std::vector<std::unique_ptr<GrantedClaim>> claims_;
  std::vector<std::unique_ptr<BusySession>> sessions_;
  std::vector<size_t> claim_of_;  // of each session
};

Counts Minus(Counts after, const Counts& before) {
  for (size_t i = 0; i < after.size(); ++i) after[i] -= before[i];
  return after;
}

// The shares of a whole, in per cent.
std::vector<double> Shares(const Counts& counts) {
  const auto all = static_cast<double>(std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
  std::vector<double> shares;
  for (const uint64_t count : counts) shares.push_back(all == 0 ? 0 : static_cast<double>(count) / all * 100);
  return shares;
}

// The largest difference, in points, between what the claims had and what they should have.
double Error(const Counts& counts, const std::vector<double>& wanted) {
  const std::vector<double> shares = Shares(counts);
  double error = 0;
  for (size_t i = 0; i < shares.size(); ++i) error = std::max(error, std::abs(shares[i] - wanted[i]));
  return error;
}

std::string Printed(const Counts& counts) {
  return absl::StrJoin(Shares(counts), " / ", [](std::string* out, double share) {
    char text[16];
    std::snprintf(text, sizeof(text), "%.2f", share);
    *out += text;
  });
}

const char* KindOf(const Work& work) { return work.kind == Work::Kind::kProducts ? "products" : "sums"; }

// `counts`: whether the target does.
void Measure(const std::vector<uint32_t>& weights, const Work& work, bool counts) {
  const int windows = Smoke() ? 3 : 100;
  Contest contest(weights, work);
  contest.Fill(NowNs() + kSettleNs);
  const std::vector<double> wanted = Shares(Counts(weights.begin(), weights.end()));
  const Counts charged = contest.ChargedNs(), first = contest.Completed();
  Counts before = first;
  std::vector<double> errors;
  int64_t at = NowNs();
  for (int i = 0; i < windows; ++i) {
    contest.Fill(at += kWindowNs);
    Counts now = contest.Completed();
    errors.push_back(Error(Minus(now, before), wanted));
    before = std::move(now);
  }
  const Counts done = Minus(before, first);
  const std::string name = absl::StrCat(absl::StrJoin(weights, "/"), " of ", KindOf(work));
  const Counts time = Minus(contest.ChargedNs(), charged);
  std::printf("  %s: work done %s %%, device time charged %s %%, the worst window is off by %.1f points\n",
              name.c_str(), Printed(done).c_str(), Printed(time).c_str(),
              *std::max_element(errors.begin(), errors.end()));
  const auto within =
      std::count_if(errors.begin(), errors.end(), [](double e) { return e <= kWindowPoints; });
  const auto target = [&](const Row::Target& of) { return counts ? std::optional(of) : std::nullopt; };
  Emit({.name = name + ", windows within 2 points",
        .value = static_cast<double>(within) / windows * 100,
        .unit = "%",
        .target = target({.at_least = true, .limit = 99})});
  Emit({.name = name + ", error in all",
        .value = Error(done, wanted),
        .unit = "points",
        .target = target({.limit = 0.5})});
  Emit({.name = name + ", error of the device time in all",
        .value = Error(time, wanted),
        .unit = "points",
        .target = target({.limit = 0.5})});
}

int Main() {
  const bool on_gpu = OnGpu();
  for (const Work::Kind kind : {Work::Kind::kProducts, Work::Kind::kSums}) {
    if (on_gpu && kind == Work::Kind::kSums) continue;
    const Work work = SmallestWork(kind);
    const bool counts = on_gpu || kind == Work::Kind::kSums;
    Measure({30, 70}, work, counts);
    Measure({10, 20, 70}, work, counts);
  }
  return 0;
}

}  // namespace
}  // namespace xpud::bench

int main() { return xpud::bench::Main(); }
