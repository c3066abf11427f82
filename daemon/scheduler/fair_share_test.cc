#include "daemon/scheduler/fair_share.h"

#include <vector>

#include "gtest/gtest.h"

namespace xpud::scheduler {
namespace {

constexpr uint64_t kSliceNs = 100'000;
uint64_t now_ns = 0;

// A session in virtual time: its commands cost `command_ns`, and after each it thinks for `think_ns`.
struct Client {
  FairShare::Account* account;
  uint64_t command_ns;
  uint64_t think_ns = 0;
  uint64_t next_ns = 0;  // when its next command arrives
  uint64_t commands = 0;
  uint64_t helped_ns = 0;  // what other cores do for it before each of its turns
};

// The lane's loop over the clients until `end_ns`.
void Advance(FairShare& shares, std::vector<Client>& clients, uint64_t end_ns) {
  while (now_ns < end_ns) {
    shares.BeginRound();
    for (Client& client : clients) {
      if (shares.Decide(*client.account) != FairShare::Answer::kRun) continue;
      if (now_ns < client.next_ns) {
        shares.WasIdle(*client.account);
        continue;
      }
      const uint64_t start = now_ns;
      do {
        now_ns += client.command_ns;
        client.next_ns = now_ns + client.think_ns;
        ++client.commands;
      } while (client.think_ns == 0 && now_ns - start < kSliceNs);
      shares.Ran(*client.account, start, now_ns, client.helped_ns);
    }
    now_ns += 500;  // a round's own time
  }
}

class FairShareTest : public ::testing::Test {
 protected:
  FairShareTest() { now_ns = 1'000'000'000; }
  static double Busy(const Client& client) {
    return static_cast<double>(client.commands * client.command_ns);
  }
  FairShare shares_{kSliceNs, [] { return now_ns; }};
};

TEST_F(FairShareTest, CommandsThatCostTenToOneGetEqualTime) {
  std::vector<Client> clients = {{&shares_.Add(), 2'000'000}, {&shares_.Add(), 200'000}};
  Advance(shares_, clients, now_ns + 1'000'000'000);
  EXPECT_NEAR(Busy(clients[0]) / (Busy(clients[0]) + Busy(clients[1])), 0.5, 0.05);
}

TEST_F(FairShareTest, WhatOtherCoresDoForAClientCounts) {
  std::vector<Client> clients = {{&shares_.Add(), 200'000}, {&shares_.Add(), 200'000}};
  clients[1].helped_ns = 200'000;
  Advance(shares_, clients, now_ns + 1'000'000'000);
  EXPECT_NEAR(Busy(clients[0]) / Busy(clients[1]), 2, 0.1);
}

TEST_F(FairShareTest, AClientThatThinksBetweenCommandsGetsItsShareBesideLongCommands) {
  std::vector<Client> clients = {
      {&shares_.Add(), 15'000'000}, {&shares_.Add(), 15'000'000}, {&shares_.Add(), 20'000, 10'000}};
  Advance(shares_, clients, now_ns + 3'000'000'000);
  // Alone it would hold the device all the time: a third of that is its due, its thinking included.
  const double held = static_cast<double>(clients[2].commands * 30'000) / 3e9;
  EXPECT_NEAR(held, 1.0 / 3, 0.07);
  EXPECT_NEAR(Busy(clients[0]) / Busy(clients[1]), 1, 0.1);
}

TEST_F(FairShareTest, ALongCommandWaitsOnlyAMomentForAClientThatDoesNotComeBack) {
  std::vector<Client> clients = {{&shares_.Add(), 5'000'000}, {&shares_.Add(), 20'000, 1'000'000}};
  Advance(shares_, clients, now_ns + 1'000'000'000);
  EXPECT_GT(Busy(clients[0]) / 1e9, 0.94);  // a twentieth is waited, a little is the other one's
  EXPECT_GT(clients[1].commands, 150u);     // once after each long command
}

TEST_F(FairShareTest, WhoComesLateIsNotServedAloneToCatchUp) {
  std::vector<Client> clients = {{&shares_.Add(), 200'000}};
  Advance(shares_, clients, now_ns + 2'000'000'000);
  clients[0].next_ns = now_ns + 1'000'000;  // and the old one is idle just now
  clients.push_back({&shares_.Add(), 200'000});
  const uint64_t before = clients[0].commands;
  Advance(shares_, clients, now_ns + 500'000'000);
  EXPECT_NEAR(static_cast<double>(clients[0].commands - before) / static_cast<double>(clients[1].commands), 1,
              0.1);
}

TEST_F(FairShareTest, IdlingSavesUpNoMoreThanALongCommand) {
  std::vector<Client> clients = {{&shares_.Add(), 200'000}, {&shares_.Add(), 200'000}};
  clients[1].next_ns = now_ns + 1'000'000'000;
  Advance(shares_, clients, now_ns + 1'000'000'000);
  const uint64_t before = clients[0].commands;
  Advance(shares_, clients, now_ns + 100'000'000);
  const double ahead = static_cast<double>(clients[1].commands - (clients[0].commands - before)) * 200'000;
  EXPECT_LE(ahead, 1.1 * FairShare::kMaxCreditNs);
}

TEST_F(FairShareTest, WhoLeavesHoldsNobodyBack) {
  FairShare::Account& gone = shares_.Add();
  std::vector<Client> clients = {{&shares_.Add(), 2'000'000}};
  shares_.BeginRound();
  shares_.Ran(gone, now_ns - 10'000, now_ns, 0);
  shares_.Remove(gone);
  Advance(shares_, clients, now_ns + 10'000'000);
  EXPECT_EQ(clients[0].commands, 5u);
}

}  // namespace
}  // namespace xpud::scheduler
