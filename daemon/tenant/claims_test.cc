#include "daemon/tenant/claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace xpud {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGiB = uint64_t{1} << 30;

Claim Simple(const std::string& key = "web") { return {.key = key, .devices = {0}}; }

std::string Refusal(const Claim& claim) {
  const absl::Status status = CheckClaim(claim, 2);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(Claim, KeysAreShortAndPlain) {
  for (const char* key : {"a", "0", "web-7", "night.batch_2"}) EXPECT_TRUE(CheckKey(key).ok()) << key;
  EXPECT_TRUE(CheckKey(std::string(63, 'a')).ok());
  for (const char* key : {"", "Web", "-a", ".a", "..", "a/b", "a b", "ä"})
    EXPECT_FALSE(CheckKey(key).ok()) << key;
  EXPECT_FALSE(CheckKey(std::string(64, 'a')).ok());
  EXPECT_THAT(std::string(CheckKey("A\n").message()), HasSubstr("\"A?\""));
}

TEST(Claim, WhatIsNotAllowedIsNamedWithWhatIs) {
  Claim claim = Simple();
  EXPECT_TRUE(CheckClaim(claim, 1).ok());
  claim.devices = {2};
  EXPECT_EQ(Refusal(claim), "there is no device 2; there are 2, from 0");
  claim.devices = {1, 0, 1};
  EXPECT_EQ(Refusal(claim), "device 1 is named twice");
  claim = Simple();
  claim.time.weight = 10'001;
  EXPECT_EQ(Refusal(claim), "weight 10001; it may be 1 to 10000");
  claim = Simple();
  claim.time.least = 3'050, claim.time.most = 3'005;
  EXPECT_EQ(Refusal(claim), "time 30.5%..30.05%: least is above most");
  claim = Simple();
  claim.memory_least = 2, claim.memory_most = 1;
  EXPECT_EQ(Refusal(claim), "memory 2..1 bytes: least is above most");
  claim = Simple();
  claim.labels["pod"] = std::string(254, 'x');
  EXPECT_EQ(Refusal(claim), "label pod has 254 bytes; it may have 253");
  claim.labels = {{"a b", ""}};
  EXPECT_THAT(Refusal(claim), HasSubstr("\"a b\""));
  claim.labels.clear();
  for (int i = 0; i < 17; ++i) claim.labels[std::to_string(i)] = "";
  EXPECT_EQ(Refusal(claim), "17 labels; a claim may have 16");
  claim = Simple();
  claim.holders = {{1000}, {1000}};
  EXPECT_EQ(Refusal(claim), "uid:1000 is named twice");
}

TEST(Claim, PartsOfTimeAreReadAsPercent) {
  EXPECT_EQ(PercentText(3'000), "30%");
  EXPECT_EQ(PercentText(50), "0.5%");
  EXPECT_EQ(PercentText(5), "0.05%");
  EXPECT_EQ(PercentText(1'234), "12.34%");
}

TEST(Claims, AUserHasAClaimUntilItEnds) {
  Claims claims;
  Claim claim = Simple();
  claim.holders = {{1000}, {7, "team"}};
  claim.time.weight = 300;
  claims.Put(claim, 0);
  EXPECT_EQ(claims.TenantOf({1000}), Tenant::OfClaim("web"));
  EXPECT_EQ(claims.TenantOf({7, "team"}), Tenant::OfClaim("web"));
  EXPECT_EQ(claims.TenantOf({7}), Tenant{7});
  EXPECT_EQ(claims.GrantOf(Tenant::OfClaim("web")).weight, 300u);
  EXPECT_EQ(claims.GrantOf({1000}), TimeGrant{});

  Claim other = Simple("night");
  other.holders = {{1000}};
  EXPECT_EQ(claims.CheckHolders(other).code(), absl::StatusCode::kAlreadyExists);
  claim.holders = {{7, "team"}};
  claims.Put(claim, 0);
  EXPECT_TRUE(claims.CheckHolders(other).ok());
  claims.BeginEnd("web");
  EXPECT_EQ(claims.TenantOf({7, "team"}), (Tenant{7, "team"}));
}

TEST(Claims, AdmitsAsManySessionsAsAreAllowed) {
  Claims claims;
  Claim claim = Simple();
  claim.sessions_most = 2;
  claims.Put(claim, 0);
  const Tenant tenant = claim.tenant();
  EXPECT_TRUE(claims.Admit({1000}).ok());
  EXPECT_TRUE(claims.Admit(tenant).ok());
  EXPECT_TRUE(claims.Admit(tenant).ok());
  EXPECT_EQ(claims.Admit(tenant).message(), "the claim web has 2 sessions; 2 are allowed");
  claims.Leave(tenant);
  claim.drained = true;
  claims.Put(claim, 0);
  EXPECT_THAT(std::string(claims.Admit(tenant).message()), HasSubstr("is drained"));
  claim.drained = false;
  claims.Put(claim, 0);
  EXPECT_TRUE(claims.Admit(tenant).ok());
  claims.BeginEnd("web");
  EXPECT_EQ(claims.Admit(tenant).message(), "the claim web has ended");
  claims.Remove("web");
  EXPECT_EQ(claims.Admit(tenant).message(), "the claim web has ended");
}

class Guarantees : public ::testing::Test {
 protected:
  static Claim Wants(const std::string& key, uint64_t gibibytes, uint32_t time = 0) {
    Claim claim = Simple(key);
    claim.memory_least = gibibytes * kGiB;
    claim.time.least = time;
    return claim;
  }
};

TEST_F(Guarantees, AreGivenOutOfWhatIsLeft) {
  const std::vector<DeviceRoom> rooms = {{.memory = 24 * kGiB, .held = {{{1000}, 3 * kGiB}}}};
  const std::vector<Claim> claims = {Wants("a", 12)};
  EXPECT_TRUE(CheckGuarantees(Wants("b", 9), claims, rooms).ok());
  EXPECT_EQ(
      CheckGuarantees(Wants("b", 10), claims, rooms).message(),
      "device 0: 10.00 GiB are wanted, and 9.00 GiB can be guaranteed: of 24.00 GiB, claims are guaranteed "
      "12.00 GiB and tenants hold 3.00 GiB beyond that");
  EXPECT_EQ(LeftOn(0, claims, rooms[0]).memory, 9 * kGiB);
}

// What a claim holds is the first part of its guarantee, and counts once.
TEST_F(Guarantees, WhatTheClaimsHoldCountsOnce) {
  const Claim a = Wants("a", 12), b = Wants("b", 12);
  const std::vector<DeviceRoom> rooms = {{.memory = 24 * kGiB, .held = {{a.tenant(), 10 * kGiB}}}};
  EXPECT_TRUE(CheckGuarantees(b, {a}, rooms).ok());
  EXPECT_TRUE(CheckGuarantees(a, {b}, rooms).ok());
  const std::vector<DeviceRoom> fuller = {{.memory = 24 * kGiB, .held = {{a.tenant(), 13 * kGiB}}}};
  EXPECT_FALSE(CheckGuarantees(b, {a}, fuller).ok());
}

TEST_F(Guarantees, OfTimeLeaveAPartToOthers) {
  const std::vector<DeviceRoom> rooms = {{.memory = kGiB}};
  const std::vector<Claim> claims = {Wants("a", 0, 6'000)};
  EXPECT_TRUE(CheckGuarantees(Wants("b", 0, 3'500), claims, rooms).ok());
  EXPECT_EQ(CheckGuarantees(Wants("b", 0, 3'501), claims, rooms).message(),
            "device 0: 35.01% of its time are wanted, and claims are guaranteed 60% of 95%");
  EXPECT_EQ(LeftOn(0, claims, rooms[0]).time, 3'500u);
}

}  // namespace
}  // namespace xpud
