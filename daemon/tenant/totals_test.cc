#include "daemon/tenant/totals.h"

#include "gtest/gtest.h"

namespace xpud {
namespace {

// Names come from gateways, so a gateway's operator must not be able to fill the daemon's memory with them.
TEST(TenantTotals, OfTooManyTenantsAreCountedTogether) {
  TenantTotals totals;
  constexpr uint64_t kTenants = 3 * TenantTotals::kMax;
  for (int round = 0; round < 2; ++round)
    for (uint64_t i = 0; i < kTenants; ++i) totals.Of({7, std::to_string(i)}).sessions_opened += 1;
  EXPECT_EQ(totals.map().size(), TenantTotals::kMax + 1);
  EXPECT_EQ(totals.map().at("uid:7/0").sessions_opened, 2u);
  EXPECT_EQ(totals.map().at(TenantTotals::kOthers).sessions_opened, 2 * (kTenants - TenantTotals::kMax));
  TenantTotals sum;
  sum.Of({8, "another"}).sessions_opened = 5;
  sum += totals;
  EXPECT_LE(sum.map().size(), TenantTotals::kMax + 1);
  uint64_t all = 0;
  for (const auto& [name, total] : sum.map()) all += total.sessions_opened;
  EXPECT_EQ(all, 2 * kTenants + 5);
}

}  // namespace
}  // namespace xpud
