#include "daemon/scheduler/tenant_shares.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

namespace xpud::scheduler {
namespace {

constexpr uint64_t kMs = 1'000'000, kSliceNs = 100'000;
uint64_t now_ns = 0;

// A session in virtual time: its commands cost `command_ns`, and after each it thinks for `think_ns`.
struct Client {
  Policy::Account* account;
  uint64_t command_ns;
  uint64_t think_ns = 0;
  uint64_t next_ns = 0;  // when its next command arrives
  uint64_t had_ns = 0;
  stream::DeviceWork work = {};
};

class TenantSharesTest : public ::testing::Test {
 protected:
  TenantSharesTest() { now_ns = 1000 * kMs; }

  Client Add(uint32_t uid, uint64_t command_ns, uint64_t think_ns = 0, uint32_t weight = 100) {
    return {&shares_.Add(Tenant{uid}, {.weight = weight}), command_ns, think_ns};
  }
  // Rounds of a lane whose own time is shared.
  void RunLane(std::vector<Client>& clients, uint64_t until_ns) {
    while (now_ns < until_ns) {
      shares_.BeginRound(now_ns);
      for (Client& client : clients) {
        if (shares_.Decide(*client.account) != Policy::Answer::kRun) continue;
        if (now_ns < client.next_ns) {
          shares_.WasIdle(*client.account);
          continue;
        }
        const uint64_t began = now_ns;
        do {
          now_ns += client.command_ns;
          client.had_ns += client.command_ns;
          client.next_ns = now_ns + client.think_ns;
        } while (client.think_ns == 0 && now_ns - began < kSliceNs);
        shares_.Ran(*client.account, began, now_ns);
      }
      now_ns += 500;  // a round's own time
    }
  }
  // Rounds of the lane of a device that does what it is given in order. Appending takes no time.
  void RunDevice(std::vector<Client>& clients, uint64_t until_ns) {
    while (now_ns < until_ns) {
      for (Client& client : clients) shares_.Update(*client.account, client.work);
      shares_.BeginRound(now_ns);
      for (Client& client : clients) {
        if (shares_.Decide(*client.account) != Policy::Answer::kRun) continue;
        if (client.work.occupied_since_ns == 0) client.work.occupied_since_ns = now_ns;
        now_ns += client.command_ns;
        client.had_ns += client.command_ns;
        client.work.used_ns += client.command_ns;
        client.work.ended_ns = now_ns;
        shares_.Ran(*client.account, now_ns, now_ns + 1);
      }
      now_ns += 500;
    }
  }
  static double Part(const std::vector<Client>& clients, size_t first, size_t count) {
    uint64_t had = 0, all = 0;
    for (size_t i = 0; i < clients.size(); ++i) {
      all += clients[i].had_ns;
      if (i >= first && i < first + count) had += clients[i].had_ns;
    }
    return static_cast<double>(had) / static_cast<double>(all);
  }

  TenantShares shares_{kSliceNs, [] { return now_ns; }};
};

TEST_F(TenantSharesTest, ATenantWithManySessionsGetsNoMoreOfTheLane) {
  std::vector<Client> clients = {Add(1, kMs)};
  for (int i = 0; i < 9; ++i) clients.push_back(Add(2, kMs / 5));
  RunLane(clients, now_ns + 3000 * kMs);
  EXPECT_NEAR(Part(clients, 0, 1), 0.5, 0.03);
  for (size_t i = 1; i < clients.size(); ++i) EXPECT_NEAR(Part(clients, i, 1), 0.5 / 9, 0.01) << i;
}

TEST_F(TenantSharesTest, TheLaneIsSharedByWeight) {
  std::vector<Client> clients = {Add(1, kMs / 4, 0, 300), Add(1, kMs / 2, 0, 300), Add(2, kMs, 0, 100)};
  RunLane(clients, now_ns + 3000 * kMs);
  EXPECT_NEAR(Part(clients, 0, 2), 0.75, 0.03);
  EXPECT_NEAR(Part(clients, 0, 1), 0.375, 0.03);
}

TEST_F(TenantSharesTest, WhatATenantLeavesIdleGoesToTheOthers) {
  std::vector<Client> clients = {Add(1, kMs / 5), Add(1, kMs / 5), Add(2, kMs / 10, 100 * kMs, 10'000)};
  RunLane(clients, now_ns + 3000 * kMs);
  EXPECT_GT(Part(clients, 0, 2), 0.99);
  EXPECT_NEAR(Part(clients, 0, 1), 0.5, 0.02);
}

TEST_F(TenantSharesTest, TheDeviceIsSharedByTenantAndWeight) {
  std::vector<Client> clients = {Add(1, 2 * kMs, 0, 200)};
  for (int i = 0; i < 4; ++i) clients.push_back(Add(2, kMs / 5, 0, 100));
  RunDevice(clients, now_ns + 5000 * kMs);
  EXPECT_NEAR(Part(clients, 0, 1), 2.0 / 3, 0.03);
  for (size_t i = 1; i < clients.size(); ++i) EXPECT_NEAR(Part(clients, i, 1), 1.0 / 12, 0.01) << i;
}

// Its sessions come and go: what they had counts for the tenant, as long as it has one.
TEST_F(TenantSharesTest, ATenantGetsNoMoreByOpeningSessionsAnew) {
  std::vector<Client> clients = {Add(1, kMs), Add(2, kMs), Add(2, kMs)};
  uint64_t gone_ns = 0;
  for (int i = 0; i < 100; ++i) {
    RunDevice(clients, now_ns + 50 * kMs);
    gone_ns += clients[2].had_ns;
    shares_.Remove(*clients[2].account);
    clients[2] = Add(2, kMs);
  }
  const double others = static_cast<double>(clients[1].had_ns + clients[2].had_ns + gone_ns);
  const double first = static_cast<double>(clients[0].had_ns);
  EXPECT_NEAR(first / (first + others), 0.5, 0.03);
}

// It is owed no more than if it had been idle.
TEST_F(TenantSharesTest, WhoRestsGetsItsPartAgainWhenItWakes) {
  std::vector<Client> clients = {Add(1, kMs), Add(2, kMs), Add(2, kMs)};
  const auto had = [&] { return clients[0].had_ns + clients[1].had_ns + clients[2].had_ns; };
  for (size_t i : {1, 2}) shares_.Rests(*clients[i].account);
  std::vector<Client> first = {clients[0]};
  RunLane(first, now_ns + 1000 * kMs);
  EXPECT_GT(first[0].had_ns, 990 * kMs);
  for (size_t i : {1, 2}) shares_.Wakes(*clients[i].account);
  RunLane(clients, now_ns + 1000 * kMs);
  EXPECT_NEAR(Part(clients, 0, 1), 0.5, 0.03);
  EXPECT_NEAR(Part(clients, 1, 1), 0.25, 0.02);
  EXPECT_GT(had(), 990 * kMs);
  shares_.Rests(*clients[1].account);
  shares_.Remove(*clients[1].account);
  shares_.Remove(*clients[2].account);
  shares_.BeginRound(now_ns);
  EXPECT_EQ(shares_.Decide(*clients[0].account), Policy::Answer::kRun);
}

TEST_F(TenantSharesTest, ATenantThatLeavesHoldsNobodyBack) {
  Client gone = Add(1, kMs);
  std::vector<Client> clients = {Add(2, 2 * kMs)};
  shares_.BeginRound(now_ns);
  shares_.Ran(*gone.account, now_ns - 10'000, now_ns);
  shares_.Remove(*gone.account);
  RunLane(clients, now_ns + 10 * kMs);
  EXPECT_EQ(clients[0].had_ns, 10 * kMs);
}

}  // namespace
}  // namespace xpud::scheduler
