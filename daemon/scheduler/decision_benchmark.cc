// What a scheduling decision costs: a round of the lane over its sessions, in ns for each of them. A tenth of
// the sessions have commands; tenants have ten sessions each, and are of three classes, every third with a
// guarantee or a cap.
#include <cstdint>
#include <vector>

#include "benchmark/benchmark.h"
#include "daemon/scheduler/tenant_shares.h"

namespace xpud::scheduler {
namespace {

uint64_t now_ns = 1'000'000'000;

TimeGrant GrantOf(uint32_t tenant) {
  TimeGrant grant = {.priority = static_cast<PriorityClass>(tenant % 3), .weight = 100 + tenant};
  if (tenant % 9 == 1) grant.least = 100;
  if (tenant % 9 == 4) grant.most = 3'000;
  return grant;
}

void Decisions(benchmark::State& state, bool synchronous) {
  TenantShares shares({.synchronous = synchronous}, TenantShares::kMinShare, [] { return now_ns; });
  const auto count = static_cast<uint32_t>(state.range(0));
  std::vector<Policy::Account*> accounts;
  for (uint32_t s = 0; s < count; ++s)
    accounts.push_back(&shares.Add(Tenant{s / 10}, count == 1 ? TimeGrant{} : GrantOf(s / 10)));
  stream::DeviceWork work;
  for (auto _ : state) {
    for (Policy::Account* const account : accounts) shares.Update(*account, work);
    shares.BeginRound(now_ns);
    uint64_t ran = 0;
    for (size_t s = 0; s < accounts.size(); ++s) {
      const bool runs = shares.Decide(*accounts[s]).answer == Policy::Answer::kRun;
      const bool has_commands = s % 10 == 0;
      if (!has_commands) {
        shares.WasIdle(*accounts[s]);
      } else if (runs) {
        shares.Ran(*accounts[s], work, now_ns, now_ns + 10'000, 0);
        ++ran;
      } else {
        shares.HeldBack(*accounts[s]);
      }
    }
    now_ns += 10'000 * (ran + 1);
  }
  const auto decisions = static_cast<double>(state.iterations()) * count;
  state.counters["decision"] =
      benchmark::Counter(decisions, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

BENCHMARK_CAPTURE(Decisions, synchronous, true)->Arg(1)->Arg(8)->Arg(1000);
BENCHMARK_CAPTURE(Decisions, asynchronous, false)->Arg(1)->Arg(8)->Arg(1000);

}  // namespace
}  // namespace xpud::scheduler

BENCHMARK_MAIN();
