// Requests, budgets and the claims that requests become.
#include "deploy/agent/grants/budget.h"

#include <string>
#include <vector>

#include "deploy/agent/grants/request.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xpud::agent {
namespace {

using grants::v1::GrantRequest;
using ::testing::HasSubstr;

constexpr uint32_t kUser = 61'001, kOther = 61'002;
constexpr uint64_t kGiB = uint64_t{1} << 30;

GrantRequest Request(uint32_t share, const std::vector<uint32_t>& devices = {}) {
  GrantRequest request;
  request.set_share(share);
  for (const uint32_t device : devices) request.add_devices(device);
  return request;
}

// What Complete says; "" for OK.
std::string Refusal(GrantRequest request, const Budget* budget = nullptr) {
  return std::string(Complete(request, budget, "user u").message());
}

v1::Claim Claim(uint32_t uid, uint32_t share, uint64_t memory, const std::vector<uint32_t>& devices) {
  GrantRequest request = Request(share, devices);
  request.set_memory_bytes(memory);
  EXPECT_EQ(Refusal(request), "");
  return ClaimOf(request, KeyOf(uid, ""), uid, std::nullopt);
}

absl::Status Admit(const std::vector<v1::Claim>& claims, const GrantRequest& request, const Budget& budget) {
  return Usage(claims, kUser).Admit(request, budget, "user u");
}

TEST(Budgets, AreTheUsersOrTheDefaultOrNone) {
  Budgets budgets{.users = {{kUser, {.share = 30}}}, .agent_uid = 500};
  EXPECT_EQ(**budgets.Of({kUser}), Budget{.share = 30});
  EXPECT_FALSE(budgets.Of({0})->has_value()) << "root has no limit";
  EXPECT_FALSE(budgets.Of({500})->has_value()) << "nor has the agent";
  const absl::Status refused = budgets.Of({kOther}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("grants: {users: {61002: {share: 25}}}"));
  budgets.fallback = Budget{.share = 5};
  EXPECT_EQ((*budgets.Of({kOther}))->share, 5u);
}

TEST(Budgets, OfAGroupComeAfterTheUsersAndBeforeTheDefault) {
  const Budgets budgets{.users = {{kUser, {.share = 30}}},
                        .groups = {{7002, {.share = 20}}, {7001, {.share = 10}}},
                        .fallback = Budget{.share = 5}};
  EXPECT_EQ((*budgets.Of({kUser, {7001, 7002}}))->share, 30u);
  EXPECT_EQ((*budgets.Of({kOther, {7001, 7002}}))->share, 20u) << "the first in the file";
  EXPECT_EQ((*budgets.Of({kOther, {1, 7001}}))->share, 10u);
  EXPECT_EQ((*budgets.Of({kOther, {7003}}))->share, 5u);
  EXPECT_FALSE(budgets.Of({0, {7001}})->has_value());
}

TEST(Budget, IsForAllGrantsOfAUserOnEachDevice) {
  const std::vector<v1::Claim> claims = {Claim(kUser, 30, kGiB, {0}), Claim(kUser, 20, kGiB, {0, 1}),
                                         Claim(kOther, 100, 9 * kGiB, {0, 1})};
  const Budget budget{.share = 60, .memory = 4 * kGiB, .claims = 3};
  EXPECT_TRUE(Admit(claims, Request(10, {0}), budget).ok());
  EXPECT_TRUE(Admit(claims, Request(40, {1}), budget).ok());
  EXPECT_TRUE(Admit(claims, Request(60, {2}), budget).ok());
  const absl::Status refused = Admit(claims, Request(11, {0}), budget);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("share 11 was asked; on device 0 user u has 50 and may have 60 in all"));
  EXPECT_FALSE(Admit(claims, Request(11), budget).ok()) << "no devices are all devices";
  EXPECT_FALSE(IsFinal(refused)) << "it can be had when others are returned";
  EXPECT_TRUE(IsFinal(Admit(claims, Request(61, {0}), budget)));
  EXPECT_TRUE(IsFinal(Admit({}, Request(61), budget)));
}

TEST(Budget, LimitsMemoryAndTheNumberOfGrants) {
  const std::vector<v1::Claim> claims = {Claim(kUser, 1, kGiB, {0}), Claim(kUser, 1, kGiB, {0})};
  GrantRequest request = Request(1, {0});
  request.set_memory_bytes(2 * kGiB);
  EXPECT_TRUE(Admit(claims, request, {.memory = 4 * kGiB}).ok());
  request.set_memory_bytes(2 * kGiB + 1);
  EXPECT_THAT(std::string(Admit(claims, request, {.memory = 4 * kGiB}).message()),
              HasSubstr("on device 0 user u has 2.00 GiB and may have 4.00 GiB in all"));
  EXPECT_FALSE(IsFinal(Admit(claims, request, {.memory = 4 * kGiB})));
  EXPECT_TRUE(IsFinal(Admit(claims, request, {.memory = 2 * kGiB})));
  request.set_memory_bytes(UINT64_MAX);
  EXPECT_FALSE(Admit(claims, request, {.memory = 4 * kGiB}).ok()) << "sums do not wrap around";
  EXPECT_THAT(std::string(Admit(claims, Request(1), {.claims = 2}).message()),
              HasSubstr("user u has 2 and may have 2 at a time"));
  v1::Claim ending = claims[0];
  ending.set_ends(true);
  EXPECT_TRUE(Admit({ending, claims[1]}, Request(1), {.claims = 2}).ok());
}

TEST(GrantRequests, AreRefusedWithWhatIsAllowed) {
  EXPECT_EQ(Refusal(Request(0)), "share 0; it may be 1 to 100");
  EXPECT_EQ(Refusal(Request(101)), "share 101; it may be 1 to 100");
  EXPECT_EQ(Refusal(Request(1, {2, 3, 2})), "device 2 is named twice");
  GrantRequest request = Request(1);
  request.set_class_("fast");
  EXPECT_EQ(Refusal(request), "class \"fast\"; it may be realtime, interactive or batch");
  request = Request(1);
  request.set_memory_bytes(0);
  EXPECT_THAT(Refusal(request), HasSubstr("memory_bytes 0"));
  request = Request(1);
  request.set_lease_ms(999);
  EXPECT_THAT(Refusal(request), HasSubstr("it may be 1000 to 2592000000 (30 days)"));
  request = Request(1);
  request.set_name("a\nb");
  EXPECT_EQ(Refusal(request), "name has characters that cannot be printed");
  request.set_name(std::string(254, 'a'));
  EXPECT_EQ(Refusal(request), "name has 254 bytes; it may have 253");
  request = Request(1);
  (*request.mutable_labels())["pid"] = "1";
  EXPECT_THAT(Refusal(request), HasSubstr("the agent sets the label pid itself"));
  request = Request(1);
  for (int i = 0; i < 9; ++i) (*request.mutable_labels())[std::to_string(i)] = "";
  EXPECT_EQ(Refusal(request), "9 labels; a grant may have 8");
}

TEST(GrantRequests, AreLimitedByClassLeaseAndMemory) {
  const Budget budget{.memory = kGiB, .best_class = "batch", .lease_ms = 10'000};
  GrantRequest request = Request(1);
  EXPECT_THAT(Refusal(request, &budget), HasSubstr("memory_bytes is unset; user u has to say how much"));
  request.set_memory_bytes(kGiB);
  ASSERT_TRUE(Complete(request, &budget, "user u").ok());
  EXPECT_EQ(request.class_(), "batch");
  EXPECT_EQ(request.lease_ms(), 10'000u);
  request.set_class_("interactive");
  EXPECT_EQ(Refusal(request, &budget), "class interactive was asked; user u may have batch");
  EXPECT_TRUE(IsFinal(Complete(request, &budget, "user u")));
  request.set_class_("");
  request.set_lease_ms(10'001);
  EXPECT_THAT(Refusal(request, &budget),
              HasSubstr("a lease of 10001 ms was asked; user u may have 10000 ms"));
  GrantRequest free = Request(1);
  ASSERT_TRUE(Complete(free, nullptr, "root").ok());
  EXPECT_EQ(free.class_(), "interactive");
  EXPECT_EQ(free.lease_ms(), 60'000u);
}

TEST(GrantRequests, BecomeClaims) {
  GrantRequest request = Request(30, {1});
  request.set_memory_bytes(kGiB);
  request.set_name("job 7");
  (*request.mutable_labels())["job"] = "7";
  request.set_until_caller_ends(true);
  ASSERT_EQ(Refusal(request), "");
  ASSERT_TRUE(Complete(request, nullptr, "u").ok());
  const v1::Claim claim = ClaimOf(request, KeyOf(kUser, "job 7"), kUser, ProcessName{42, "boot-7"});
  EXPECT_EQ(claim.weight(), 30u);
  EXPECT_EQ(claim.time_least(), 2850u);
  EXPECT_EQ(claim.memory_least_bytes(), kGiB);
  EXPECT_EQ(claim.memory_most_bytes(), kGiB);
  EXPECT_EQ(claim.door_uid(), kUser);
  EXPECT_EQ(claim.lifetime_ms(), kProcessLeaseMs);
  EXPECT_EQ(claim.labels().at("engine"), "grants");
  EXPECT_EQ(claim.labels().at("uid"), "61001");
  EXPECT_TRUE(AgentRenews(claim));
  EXPECT_EQ(ProcessOf(claim), (ProcessName{42, "boot-7"}));
  EXPECT_EQ(StateOf(claim).labels_size(), 1);
  EXPECT_EQ(StateOf(claim).name(), "job 7");
  GrantRequest other = request;
  other.set_share(31);
  other.set_lease_ms(5000);
  EXPECT_EQ(DifferencesOf(claim, ClaimOf(other, claim.key(), kUser, ProcessName{43, "boot-7"})),
            "share, until_caller_ends");
}

TEST(GrantKeys, NameTheirUser) {
  EXPECT_EQ(KeyOf(kUser, "a"), KeyOf(kUser, "a"));
  EXPECT_NE(KeyOf(kUser, "a"), KeyOf(kUser, "b"));
  EXPECT_NE(KeyOf(kUser, "a"), KeyOf(kOther, "a"));
  EXPECT_NE(KeyOf(kUser, ""), KeyOf(kUser, ""));
  EXPECT_EQ(OwnerOf(KeyOf(kUser, "")), kUser);
  EXPECT_EQ(OwnerOf(KeyOf(UINT32_MAX, "a")), UINT32_MAX);
  for (const char* key :
       {"", "grant-", "grant-1-", "grant-1-0123456789abcde", "grant-1-0123456789ABCDEF",
        "grant-01-0123456789abcdef", "grant--1-0123456789abcdef", "grant-4294967296-0123456789abcdef",
        "grant-1-0123456789abcdef0", "pod-1-0123456789abcdef"})
    EXPECT_EQ(OwnerOf(key), std::nullopt) << key;
}

}  // namespace
}  // namespace xpud::agent
