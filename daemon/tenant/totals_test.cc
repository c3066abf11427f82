#include "daemon/tenant/totals.h"

#include "daemon/tenant/nice.h"

#include "gtest/gtest.h"

namespace xpud {
namespace {

// Names come from gateways, so a gateway's operator must not be able to fill the daemon's memory with them.
TEST(TenantTotals, OfTooManyTenantsAreCountedTogether) {
  TenantTotals totals;
  constexpr uint64_t kTenants = 3 * TenantTotals::kMax;
  for (int round = 0; round < 2; ++round)
    for (uint64_t i = 0; i < kTenants; ++i) totals.Opened({7, std::to_string(i)});
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

// An agent makes a tenant for each of its pods.
TEST(TenantTotals, WhoLeftMakesRoomForTheLiving) {
  TenantTotals totals;
  const auto tenant = [](uint64_t i) { return Tenant{7, std::to_string(i)}; };
  totals.Opened(tenant(0));
  totals.Of(tenant(0)).counters[1].commands_completed = 3;
  constexpr uint64_t kTenants = 3 * TenantTotals::kMax;
  for (uint64_t i = 1; i < kTenants; ++i) {
    totals.Opened(tenant(i));
    totals.Of(tenant(i)).counters[0].commands_completed = 1;
    totals.Closed(tenant(i));
  }
  EXPECT_LE(totals.map().size(), TenantTotals::kMax + 1);
  EXPECT_EQ(totals.map().at("uid:7/0").sessions, 1u) << "it lives";
  EXPECT_TRUE(totals.map().contains("uid:7/" + std::to_string(kTenants - 1))) << "it left last";
  EXPECT_FALSE(totals.map().contains("uid:7/1")) << "it left first";
  totals.Opened(tenant(kTenants));
  EXPECT_EQ(totals.map().at("uid:7/" + std::to_string(kTenants)).sessions, 1u);
  uint64_t opened = 0, completed = 0;
  for (const auto& [name, total] : totals.map()) {
    opened += total.sessions_opened;
    completed += total.AllCounters().commands_completed;
  }
  EXPECT_EQ(opened, kTenants + 1) << "nothing is lost";
  EXPECT_EQ(completed, kTenants - 1 + 3);
  EXPECT_EQ(totals.WorkOn(1).map().size(), 1u);
  EXPECT_TRUE(totals.Sessions().map().at("uid:7/0").counters.empty());
}

TEST(Nice, EachStepIsAFifthLess) {
  EXPECT_EQ(WeightOfNice(0), kSessionWeight);
  EXPECT_EQ(WeightOfNice(1), 8'000u);
  EXPECT_EQ(WeightOfNice(2), 6'400u);
  EXPECT_EQ(WeightOfNice(19), 144u);
}

TEST(Nice, ASessionOnlyLowersItself) {
  EXPECT_TRUE(CheckNice(5, 5, false).ok());
  EXPECT_TRUE(CheckNice(5, 19, false).ok());
  EXPECT_TRUE(CheckNice(5, 0, true).ok());
  EXPECT_EQ(CheckNice(5, 4, false).message(),
            "nice 4 would raise the session, whose nice is 5; it can only lower itself: use 5 to 19");
  EXPECT_EQ(CheckNice(5, 20, true).message(), "nice 20 is not allowed; use 0 to 19");
}

}  // namespace
}  // namespace xpud
