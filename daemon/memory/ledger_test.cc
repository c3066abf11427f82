#include "daemon/memory/ledger.h"

#include "gtest/gtest.h"

namespace xpud::memory {
namespace {

using Scope = MemoryShortage::Scope;

class LedgerTest : public ::testing::Test {
 protected:
  ~LedgerTest() override {
    for (Ledger::Account* account : {&a_, &b_, &c_}) {
      ledger_.Release(*account, account->held());
      ledger_.Close(*account);
    }
    EXPECT_EQ(ledger_.unused(), 0u);
  }

  Ledger ledger_{1000};
  std::atomic<uint64_t> words_[3] = {}, claims_[3] = {};
  // Two sessions of one tenant, and one session of another.
  Ledger::Account& a_ = ledger_.Open({7}, &words_[0], &claims_[0]);
  Ledger::Account& b_ = ledger_.Open({7}, &words_[1], &claims_[1]);
  Ledger::Account& c_ = ledger_.Open({8}, &words_[2], &claims_[2]);
};

TEST_F(LedgerTest, WhatIsHeldIsPartOfTheCredit) {
  ledger_.Give(a_, 300);
  EXPECT_EQ(words_[0], 300u);
  EXPECT_EQ(ledger_.unused(), 300u);
  ledger_.Hold(a_, 200);
  EXPECT_EQ(ledger_.unused(), 100u);
  ledger_.Hold(a_, 200);  // freed memory that is still in use is included
  EXPECT_EQ(ledger_.unused(), 0u);
  ledger_.Release(a_, 350);
  EXPECT_EQ(ledger_.unused(), 250u);
  EXPECT_EQ(words_[0], 300u);
}

// Others have what is not promised; the tenant itself has it all.
TEST_F(LedgerTest, WhatIsGuaranteedIsPromisedUntilItIsCredit) {
  ledger_.SetGuarantee({7}, 400);
  EXPECT_EQ(ledger_.PromisedToOthers(c_), 400u);
  EXPECT_EQ(ledger_.PromisedToOthers(a_), 0u);
  ledger_.Give(a_, 100);
  ledger_.Give(b_, 200);
  EXPECT_EQ(ledger_.PromisedToOthers(c_), 100u);
  ledger_.Give(b_, 200);  // more than it is guaranteed
  EXPECT_EQ(ledger_.PromisedToOthers(c_), 0u);
  ledger_.Reclaim();
  EXPECT_EQ(ledger_.PromisedToOthers(c_), 400u);
  ledger_.SetGuarantee({9}, 50);  // a tenant without a session
  EXPECT_EQ(ledger_.PromisedToOthers(a_), 50u);
  ledger_.SetAbsent(30);
  EXPECT_EQ(ledger_.PromisedToOthers(a_), 80u);
  ledger_.SetGuarantee({7}, 0);
  ledger_.SetGuarantee({9}, 0);
  EXPECT_EQ(ledger_.PromisedToOthers(c_), 0u);
  EXPECT_EQ(ledger_.tenants().count({9}), 0u);
}

TEST_F(LedgerTest, ATenantsSessionsShareItsQuota) {
  EXPECT_EQ(ledger_.Room(a_), 900u);
  ledger_.Give(a_, 500);
  EXPECT_EQ(ledger_.Room(b_), 400u);
  EXPECT_EQ(ledger_.Room(c_), 900u);
  EXPECT_FALSE(ledger_.ShortOf(b_, 400));
  const auto shortage = ledger_.ShortOf(b_, 401);
  ASSERT_TRUE(shortage);
  EXPECT_EQ(shortage->scope, Scope::kUser);
  EXPECT_EQ(shortage->limit, 900u);
  EXPECT_EQ(shortage->used, 500u);
}

TEST_F(LedgerTest, ASessionsOwnQuotaComesFirst) {
  ledger_.SetQuota(a_, 100);
  ledger_.Give(a_, 60);
  EXPECT_EQ(ledger_.Room(a_), 40u);
  const auto shortage = ledger_.ShortOf(a_, 41);
  ASSERT_TRUE(shortage);
  EXPECT_EQ(shortage->scope, Scope::kProcess);
  EXPECT_EQ(shortage->limit, 100u);
  EXPECT_EQ(ledger_.QuotaOf(a_), 100u);
  ledger_.SetQuota(a_, std::nullopt);
  EXPECT_EQ(ledger_.Room(a_), 840u);
}

TEST_F(LedgerTest, ALowerQuotaTakesUnusedCreditBackOnceTheSessionIsIdle) {
  ledger_.Give(a_, 600);
  ledger_.Hold(a_, 300);
  ledger_.SetIdle(a_, false);
  ledger_.SetTenantQuota({7}, 200);
  EXPECT_EQ(words_[0], 600u);
  EXPECT_EQ(ledger_.Room(a_), 0u);
  ledger_.SetIdle(a_, true);
  EXPECT_EQ(words_[0], 300u);  // memory that it holds stays
  EXPECT_EQ(ledger_.Room(a_), 0u);
  ledger_.SetTenantQuota({7}, std::nullopt);
  EXPECT_EQ(ledger_.Room(a_), 600u);
  ledger_.SetDefaultQuota(350);
  EXPECT_EQ(ledger_.Room(a_), 50u);
  EXPECT_EQ(ledger_.Room(c_), 350u);
}

TEST_F(LedgerTest, OnlyIdleSessionsGiveUnusedCreditBack) {
  ledger_.Give(a_, 300);
  ledger_.Give(c_, 300);
  ledger_.Hold(c_, 100);
  ledger_.SetIdle(a_, false);
  ledger_.Reclaim();
  EXPECT_EQ(words_[0], 300u);
  EXPECT_EQ(words_[2], 100u);
  EXPECT_EQ(ledger_.unused(), 300u);
}

TEST_F(LedgerTest, WhatIsClaimedIsNotTakenBack) {
  ledger_.Give(a_, 300);
  ledger_.Hold(a_, 100);
  claims_[0] = 250;
  ledger_.Give(c_, 300);
  claims_[2] = 5000;  // a claim does not raise the credit
  ledger_.Reclaim();
  EXPECT_EQ(words_[0], 250u);
  EXPECT_EQ(words_[2], 300u);
}

TEST_F(LedgerTest, ATenantIsForgottenUnlessItHasAQuota) {
  std::atomic<uint64_t> word{0};
  ledger_.SetTenantQuota({10}, 5);
  ledger_.Close(ledger_.Open({9}, &word, &word));
  ledger_.Close(ledger_.Open({10}, &word, &word));
  EXPECT_FALSE(ledger_.tenants().contains({9}));
  EXPECT_TRUE(ledger_.tenants().contains({10}));
  EXPECT_EQ(ledger_.Room(ledger_.Open({10}, &word, &word)), 5u);
}

TEST_F(LedgerTest, TenantsBehindOneGatewayShareNothing) {
  std::atomic<uint64_t> words[3], claims[3] = {};
  Ledger::Account& one = ledger_.Open({9, "one"}, &words[0], &claims[0]);
  Ledger::Account& other = ledger_.Open({9, "other"}, &words[1], &claims[1]);
  ledger_.SetTenantQuota({9, "one"}, 5);
  EXPECT_EQ(ledger_.Room(one), 5u);
  EXPECT_GT(ledger_.Room(other), 5u);
  ledger_.Give(one, 3);
  EXPECT_EQ(one.share().unused, 3u);
  EXPECT_EQ(other.share().unused, 0u);
  ledger_.Close(one);
}

}  // namespace
}  // namespace xpud::memory
