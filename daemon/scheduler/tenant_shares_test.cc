#include "daemon/scheduler/tenant_shares.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace xpud::scheduler {
namespace {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000, kSecond = 1'000'000'000, kSliceNs = 100'000;
constexpr uint32_t kPerCent = 100;  // in hundredths
uint64_t now_ns = 0;

int last_id = 0;

// A session in virtual time: its commands cost `command_ns`, and after each, or on a device after each
// `burst`, it thinks for `think_ns`.
struct Client {
  Policy::Account* account;
  uint64_t command_ns;
  uint64_t think_ns = 0;
  int burst = 1;
  int sent = 0;          // of a burst
  uint64_t next_ns = 0;  // when its next command arrives
  uint64_t had_ns = 0;
  uint64_t waited_ns = 0, longest_wait_ns = 0;  // for its turn
  uint64_t helped_ns = 0;                       // what other cores do for it before each of its turns
  int id = ++last_id;
  bool ran = false;  // in this round
  stream::DeviceWork work = {};
};

// What each client had in each second, in per cent.
using Seconds = std::vector<std::vector<double>>;

class TenantSharesTest : public ::testing::Test {
 protected:
  TenantSharesTest() { now_ns = 1000 * kMs; }

  Client Add(uint32_t uid, uint64_t command_ns, uint64_t think_ns = 0, const TimeGrant& grant = {}) {
    return {&shares_->Add(Tenant{uid}, grant), command_ns, think_ns};
  }
  // Rounds of a synchronous lane, which sleeps when everybody must wait.
  void RunLane(std::vector<Client>& clients, uint64_t until_ns) {
    while (now_ns < until_ns) {
      shares_->BeginRound(now_ns);
      ++rounds_;
      bool worked = false, held_back = false;
      for (Client& client : clients) {
        const Policy::Answer answer = shares_->Decide(*client.account).answer;
        if (answer == Policy::Answer::kAwaitAnother) {
          worked = true;
          continue;
        }
        if (now_ns < client.next_ns) {
          shares_->WasIdle(*client.account);
          continue;
        }
        if (answer != Policy::Answer::kRun) {
          shares_->HeldBack(*client.account);
          held_back |= answer == Policy::Answer::kHoldBack;
          continue;
        }
        RunSlice(client);
        worked = true;
      }
      now_ns += 500;  // a round's own time
      if (worked || held_back) continue;
      uint64_t next_ns = std::min(shares_->DueNs(), until_ns);
      for (const Client& client : clients)
        if (now_ns < client.next_ns) next_ns = std::min(next_ns, client.next_ns);
      now_ns = std::max(now_ns, next_ns);
    }
    std::ranges::sort(clients, {}, [&](const Client& client) { return order_.at(client.account); });
  }
  static void WhoRanGoesLast(std::vector<Client>& clients) {
    std::vector<Client> order;
    for (const bool ran : {false, true})
      std::ranges::copy_if(clients, std::back_inserter(order), [&](const Client& c) { return c.ran == ran; });
    clients = std::move(order);
    for (Client& client : clients) client.ran = false;
  }
  void RunSlice(Client& client) {
    client.ran = true;
    const uint64_t began = now_ns, waited = began - std::min(began, std::max(client.next_ns, began_ns_));
    client.waited_ns += waited;
    if (client.think_ns != 0) client.longest_wait_ns = std::max(client.longest_wait_ns, waited);
    do {
      now_ns += client.command_ns;
      client.had_ns += client.command_ns;
      client.next_ns = now_ns + client.think_ns;
    } while (client.think_ns == 0 && now_ns - began < kSliceNs);
    client.work.waited_ns = waited;
    shares_->Ran(*client.account, client.work, began, now_ns, client.helped_ns);
  }
  // Runs the clients, and says what each had of each second.
  template <typename Run>
  static Seconds EachSecond(std::vector<Client>& clients, int seconds, Run run) {
    Seconds had;
    for (int s = 0; s < seconds; ++s) {
      std::vector<uint64_t> before;
      for (const Client& client : clients) before.push_back(client.had_ns);
      const uint64_t began = now_ns;
      run(clients, began + kSecond);
      auto& second = had.emplace_back();
      for (size_t i = 0; i < clients.size(); ++i)
        second.push_back(100.0 * static_cast<double>(clients[i].had_ns - before[i]) /
                         static_cast<double>(now_ns - began));
    }
    return had;
  }
  void RunLaneFor(std::vector<Client>& clients, uint64_t ns) {
    Remember(clients);
    RunLane(clients, now_ns + ns);
  }
  Seconds LaneSeconds(std::vector<Client>& clients, int seconds) {
    Remember(clients);
    return EachSecond(clients, seconds, [&](auto& all, uint64_t until) { RunLane(all, until); });
  }
  void Remember(const std::vector<Client>& clients) {
    for (size_t i = 0; i < clients.size(); ++i) order_[clients[i].account] = i;
  }
  static double Part(const std::vector<Client>& clients, size_t first, size_t count) {
    uint64_t had = 0, all = 0;
    for (size_t i = 0; i < clients.size(); ++i) {
      all += clients[i].had_ns;
      if (i >= first && i < first + count) had += clients[i].had_ns;
    }
    return static_cast<double>(had) / static_cast<double>(all);
  }

  void Use(bool synchronous, uint32_t least_share = TenantShares::kMinShare) {
    shares_ = std::make_unique<TenantShares>(Policy::Traits{.slice_ns = kSliceNs, .synchronous = synchronous},
                                             least_share, [] { return now_ns; });
  }

  std::unique_ptr<TenantShares> shares_ = std::make_unique<TenantShares>(
      Policy::Traits{.slice_ns = kSliceNs}, TenantShares::kMinShare, [] { return now_ns; });
  std::map<const Policy::Account*, size_t> order_;
  uint64_t began_ns_ = 1000 * kMs;
  uint64_t rounds_ = 0;
};

// An asynchronous device that does what it is given, one command after the other, in the order given.
class OnDevice : public TenantSharesTest {
 protected:
  OnDevice() { Use(/*synchronous=*/false); }

  // Rounds of its lane, each `kRoundNs` long.
  void RunDevice(std::vector<Client>& clients, uint64_t until_ns) {
    for (; now_ns < until_ns; now_ns += kRoundNs) {
      Complete();
      for (Client& client : clients) shares_->Update(*client.account, client.work);
      shares_->BeginRound(now_ns);
      for (Client& client : clients) Turn(client);
      WhoRanGoesLast(clients);
    }
    std::ranges::sort(clients, {}, [&](const Client& client) { return order_.at(client.account); });
  }
  void RunDeviceFor(std::vector<Client>& clients, uint64_t ns) {
    Remember(clients);
    clients_ = &clients;
    RunDevice(clients, now_ns + ns);
  }
  Seconds DeviceSeconds(std::vector<Client>& clients, int seconds) {
    Remember(clients);
    clients_ = &clients;
    return EachSecond(clients, seconds, [&](auto& all, uint64_t until) { RunDevice(all, until); });
  }

 private:
  static constexpr uint64_t kRoundNs = 10 * kUs;
  static constexpr uint64_t kQueueNs = 10 * kMs;  // that a queue has in flight at most
  struct Sent {
    int client;
    uint64_t sent_ns, ns;
  };

  void Turn(Client& client) {
    const Policy::Decision decision = shares_->Decide(*client.account);
    if (now_ns < client.next_ns) return shares_->WasIdle(*client.account);
    if (decision.answer != Policy::Answer::kRun) return shares_->HeldBack(*client.account);
    bool sent = false;
    while (client.work.in_flight_ns < kQueueNs && client.work.HasRoom(decision.window) &&
           now_ns >= client.next_ns) {
      sent = true;
      queue_.push_back({client.id, now_ns, client.command_ns});
      client.work.in_flight_ns += client.command_ns;
      client.work.long_in_flight += client.command_ns >= stream::DeviceWork::kLongNs;
      if (client.work.occupied_since_ns == 0) client.work.occupied_since_ns = now_ns;
      if (client.think_ns != 0 && ++client.sent == client.burst)
        client.next_ns = UINT64_MAX;  // until it has ended
    }
    client.ran = sent;
    if (sent)
      shares_->Ran(*client.account, client.work, now_ns, now_ns + kUs, 0);
    else
      shares_->IsFull(*client.account);
  }
  void Complete() {
    while (!queue_.empty()) {
      const Sent& first = queue_.front();
      const uint64_t began = std::max(idle_ns_, first.sent_ns);
      if (began + first.ns > now_ns) return;
      idle_ns_ = began + first.ns;
      const auto found = std::ranges::find(*clients_, first.client, &Client::id);
      if (found == clients_->end()) {
        queue_.pop_front();
        continue;  // it has gone
      }
      Client& client = *found;
      client.had_ns += first.ns;
      client.work.used_ns += first.ns;
      client.work.ended_ns = now_ns;
      client.work.in_flight_ns -= first.ns;
      client.work.long_in_flight -= first.ns >= stream::DeviceWork::kLongNs;
      if (client.work.in_flight_ns == 0) client.work.occupied_since_ns = 0;
      if (client.sent == client.burst && client.work.in_flight_ns == 0) {
        client.sent = 0;
        client.next_ns = now_ns + client.think_ns;
      }
      queue_.pop_front();
    }
  }

  std::vector<Client>* clients_ = nullptr;
  std::deque<Sent> queue_;
  uint64_t idle_ns_ = 0;  // until when the device works
};

TEST_F(TenantSharesTest, ATenantWithManySessionsGetsNoMoreOfTheLane) {
  std::vector<Client> clients = {Add(1, kMs)};
  for (int i = 0; i < 9; ++i) clients.push_back(Add(2, kMs / 5));
  RunLaneFor(clients, 3000 * kMs);
  EXPECT_NEAR(Part(clients, 0, 1), 0.5, 0.03);
  for (size_t i = 1; i < clients.size(); ++i) EXPECT_NEAR(Part(clients, i, 1), 0.5 / 9, 0.01) << i;
}

// Whoever is asked first in each round.
TEST_F(TenantSharesTest, ASessionThatPausesIsNotStarvedByAnotherOfItsTenant) {
  for (const bool beside_another_tenant : {false, true}) {
    std::vector<Client> clients = {Add(1, 600 * kUs), Add(1, 600 * kUs, 900 * kUs)};
    if (beside_another_tenant) clients.push_back(Add(2, 600 * kUs));
    began_ns_ = now_ns;
    RunLaneFor(clients, 2 * kSecond);
    EXPECT_GT(Part(clients, 1, 1) / Part(clients, 0, 2), 0.25) << beside_another_tenant;
    EXPECT_LT(clients[1].longest_wait_ns, 5 * kMs) << beside_another_tenant;
    for (const Client& client : clients) shares_->Remove(*client.account);
  }
}

TEST_F(TenantSharesTest, TheLaneIsSharedByWeight) {
  std::vector<Client> clients = {Add(1, kMs / 4, 0, {.weight = 300}), Add(1, kMs / 2, 0, {.weight = 300}),
                                 Add(2, kMs, 0, {.weight = 100})};
  RunLaneFor(clients, 3000 * kMs);
  EXPECT_NEAR(Part(clients, 0, 2), 0.75, 0.03);
  EXPECT_NEAR(Part(clients, 0, 1), 0.375, 0.03);
}

TEST_F(TenantSharesTest, WhatATenantLeavesIdleGoesToTheOthers) {
  std::vector<Client> clients = {Add(1, kMs / 5), Add(1, kMs / 5),
                                 Add(2, kMs / 10, 100 * kMs, {.weight = 10'000})};
  RunLaneFor(clients, 3000 * kMs);
  EXPECT_GT(Part(clients, 0, 2), 0.99);
  EXPECT_NEAR(Part(clients, 0, 1), 0.5, 0.02);
}

TEST_F(OnDevice, TheDeviceIsSharedByTenantAndWeight) {
  std::vector<Client> clients = {Add(1, 2 * kMs, 0, {.weight = 200})};
  for (int i = 0; i < 4; ++i) clients.push_back(Add(2, kMs / 5, 0, {.weight = 100}));
  RunDeviceFor(clients, 5000 * kMs);
  EXPECT_NEAR(Part(clients, 0, 1), 2.0 / 3, 0.03);
  for (size_t i = 1; i < clients.size(); ++i) EXPECT_NEAR(Part(clients, i, 1), 1.0 / 12, 0.01) << i;
}

// Its sessions come and go: what they had counts for the tenant, as long as it has one.
TEST_F(OnDevice, ATenantGetsNoMoreByOpeningSessionsAnew) {
  std::vector<Client> clients = {Add(1, kMs), Add(2, kMs), Add(2, kMs)};
  uint64_t gone_ns = 0;
  for (int i = 0; i < 100; ++i) {
    RunDeviceFor(clients, 50 * kMs);
    gone_ns += clients[2].had_ns;
    shares_->Remove(*clients[2].account);
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
  for (size_t i : {1, 2}) shares_->Rests(*clients[i].account);
  std::vector<Client> first = {clients[0]};
  RunLaneFor(first, 1000 * kMs);
  EXPECT_GT(first[0].had_ns, 990 * kMs);
  for (size_t i : {1, 2}) shares_->Wakes(*clients[i].account);
  RunLaneFor(clients, 1000 * kMs);
  EXPECT_NEAR(Part(clients, 0, 1), 0.5, 0.03);
  EXPECT_NEAR(Part(clients, 1, 1), 0.25, 0.02);
  EXPECT_GT(had(), 990 * kMs);
  shares_->Rests(*clients[1].account);
  shares_->Remove(*clients[1].account);
  shares_->Remove(*clients[2].account);
  shares_->BeginRound(now_ns);
  EXPECT_EQ(shares_->Decide(*clients[0].account).answer, Policy::Answer::kRun);
}

TEST_F(TenantSharesTest, ATenantThatLeavesHoldsNobodyBack) {
  Client gone = Add(1, kMs);
  std::vector<Client> clients = {Add(2, 2 * kMs)};
  shares_->BeginRound(now_ns);
  shares_->Ran(*gone.account, {}, now_ns - 10'000, now_ns, 0);
  shares_->Remove(*gone.account);
  RunLaneFor(clients, 10 * kMs);
  EXPECT_EQ(clients[0].had_ns, 10 * kMs);
}

constexpr TimeGrant kRealtime = {.priority = PriorityClass::kRealtime};
constexpr TimeGrant kBatch = {.priority = PriorityClass::kBatch};

TEST_F(TenantSharesTest, AClassGoesFirstAndLeavesThoseBelowTheirLeastPart) {
  std::vector<Client> clients = {Add(1, kMs / 10, 0, kRealtime), Add(2, kMs), Add(3, kMs, 0, kBatch),
                                 Add(4, kMs / 2, 0, kBatch)};
  for (const auto& had : LaneSeconds(clients, 5)) {
    EXPECT_NEAR(had[0], 96, 1);
    EXPECT_NEAR(had[1], 2, 0.3);
    EXPECT_NEAR(had[2] + had[3], 2, 0.3);
    EXPECT_NEAR(had[2], 1, 0.3);
  }
}

TEST_F(TenantSharesTest, WithoutALeastPartAClassMayStarve) {
  Use(/*synchronous=*/true, /*least_share=*/0);
  std::vector<Client> clients = {Add(1, kMs / 10), Add(2, kMs, 0, kBatch)};
  RunLaneFor(clients, kSecond);
  EXPECT_LT(clients[1].had_ns, 2 * kMs);  // before anybody was known to have work
}

TEST_F(TenantSharesTest, WithinAStarvedClassTimeIsSharedByWeight) {
  std::vector<Client> clients = {Add(1, kMs / 10), Add(2, kMs / 5, 0, {PriorityClass::kBatch, 300}),
                                 Add(3, kMs / 5, 0, {PriorityClass::kBatch, 100})};
  RunLaneFor(clients, 20 * kSecond);
  EXPECT_NEAR(Part(clients, 1, 1) / Part(clients, 1, 2), 0.75, 0.03);
}

// It waits for no more than one slice of a class below.
TEST_F(TenantSharesTest, RequestsOfAHigherClassAreServedAtOnce) {
  std::vector<Client> clients = {Add(1, kMs / 2, 7 * kMs, kRealtime)};
  for (uint32_t i = 0; i < 8; ++i) clients.push_back(Add(2 + i, kMs, 0, kBatch));
  RunLaneFor(clients, 5 * kSecond);
  EXPECT_LE(clients[0].longest_wait_ns, kMs + 50 * kUs);
  EXPECT_GT(Part(clients, 1, 8), 0.9);
  const HeldTimes held = shares_->Held(*clients[0].account);
  EXPECT_GT(held.for_lower.sum_ns(), clients[0].waited_ns / 2);
  EXPECT_LE(held.for_lower.sum_ns(), clients[0].waited_ns);
  EXPECT_EQ(shares_->Held(*clients[1].account).for_lower.sum_ns(), 0u);
}

TEST_F(TenantSharesTest, ATenantHasItsLeastInEachSecondWhateverTheClasses) {
  std::vector<Client> clients = {
      Add(1, kMs / 10, 0, {.priority = PriorityClass::kBatch, .least = 30 * kPerCent}),
      Add(2, kMs / 5, 0, {.priority = PriorityClass::kBatch, .least = 10 * kPerCent})};
  for (uint32_t i = 0; i < 10; ++i) clients.push_back(Add(10 + i, kMs, 0, kRealtime));
  for (const auto& had : LaneSeconds(clients, 10)) {
    EXPECT_GE(had[0], 29.9);
    EXPECT_LE(had[0], 32);
    EXPECT_GE(had[1], 9.9);
    EXPECT_LE(had[1], 12);
  }
}

TEST_F(TenantSharesTest, AGuaranteeHoldsFromTheSecondInWhichOthersArrive) {
  std::vector<Client> alone = {Add(1, kMs, 0, {.priority = PriorityClass::kBatch, .least = 30 * kPerCent})};
  EXPECT_GT(LaneSeconds(alone, 5).back()[0], 99);
  std::vector<Client> clients = {alone[0], Add(2, kMs, 0, kRealtime)};
  for (const auto& had : LaneSeconds(clients, 5)) EXPECT_GE(had[0], 29.9);
}

// The part is a minimum, not an addition: by weight it would get half.
TEST_F(TenantSharesTest, AGuaranteeBelowItsPartByWeightChangesNothing) {
  std::vector<Client> clients = {Add(1, kMs / 5, 0, {.least = 30 * kPerCent}), Add(2, kMs / 5)};
  RunLaneFor(clients, 5 * kSecond);
  EXPECT_NEAR(Part(clients, 0, 1), 0.5, 0.01);
}

TEST_F(TenantSharesTest, ACapHoldsInEachSecondAlsoOnAnIdleDevice) {
  for (const uint32_t percent : {1, 5, 30, 50, 90}) {
    std::vector<Client> clients = {Add(percent, kMs / 10, 0, {.most = percent * kPerCent})};
    auto seconds = LaneSeconds(clients, 11);
    seconds.erase(seconds.begin());
    for (const auto& had : seconds) {
      EXPECT_LE(had[0], percent);
      EXPECT_GE(had[0], percent * 28 / 30.0);
    }
    shares_->Remove(*clients[0].account);
  }
}

TEST_F(TenantSharesTest, ACapHoldsForLongCommandsOfManySessions) {
  std::vector<Client> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(Add(1, kMs, 0, {.most = 30 * kPerCent}));
  for (const auto& had : LaneSeconds(clients, 10)) {
    double sum = 0;
    for (const double part : had) sum += part;
    EXPECT_LE(sum, 30);
    EXPECT_GE(sum, 28);
  }
}

TEST_F(TenantSharesTest, TheLaneSleepsWhileAllMustWait) {
  std::vector<Client> clients = {Add(1, kMs / 10, 0, {.most = 10 * kPerCent}),
                                 Add(2, kMs / 10, 0, {.paused = true})};
  RunLaneFor(clients, 10 * kSecond);
  EXPECT_EQ(clients[1].had_ns, 0u);
  EXPECT_LT(rounds_, 15'000u);  // ten for each millisecond of work, at most
}

TEST_F(TenantSharesTest, WhatACappedTenantLeavesGoesToLowerClassesToo) {
  std::vector<Client> clients = {
      Add(1, kMs / 10, 0, {.priority = PriorityClass::kRealtime, .most = 30 * kPerCent}),
      Add(2, kMs, 0, kBatch)};
  auto seconds = LaneSeconds(clients, 5);
  for (const auto& had : seconds) {
    EXPECT_NEAR(had[0], 29, 1.1);
    EXPECT_GT(had[1], 69);
  }
}

TEST_F(TenantSharesTest, APausedTenantRunsNothingAndHoldsNobodyBack) {
  std::vector<Client> clients = {Add(1, kMs / 5), Add(2, kMs / 5)};
  RunLaneFor(clients, kSecond);
  const uint64_t had = clients[0].had_ns;
  shares_->Change(Tenant{1}, {.priority = PriorityClass::kRealtime, .paused = true});
  EXPECT_GT(LaneSeconds(clients, 1)[0][1], 99);
  EXPECT_EQ(clients[0].had_ns, had);
  EXPECT_EQ(shares_->DueNs(), UINT64_MAX);
  const uint64_t held = shares_->Held(*clients[0].account).ns[static_cast<size_t>(HeldCause::kPaused)];
  EXPECT_NEAR(static_cast<double>(held), kSecond, 10 * kMs);
  shares_->Change(Tenant{1}, {});
  EXPECT_NEAR(LaneSeconds(clients, 1)[0][0], 50, 3);
}

TEST_F(TenantSharesTest, GrantsChangeLive) {
  std::vector<Client> clients = {Add(1, kMs / 5), Add(1, kMs / 5), Add(2, kMs / 5)};
  EXPECT_NEAR(LaneSeconds(clients, 1)[0][2], 50, 2);
  shares_->Change(Tenant{2}, {.weight = 300});
  EXPECT_NEAR(LaneSeconds(clients, 2)[1][2], 75, 2);
  shares_->Change(Tenant{2}, {.priority = PriorityClass::kBatch, .weight = 300});
  EXPECT_NEAR(LaneSeconds(clients, 1)[0][2], 2, 1);
  shares_->Change(Tenant{2}, {.priority = PriorityClass::kRealtime});
  EXPECT_NEAR(LaneSeconds(clients, 1)[0][2], 98, 1);
  shares_->Change(Tenant{2}, {.most = 10 * kPerCent});
  EXPECT_NEAR(LaneSeconds(clients, 1)[0][2], 9.7, 0.5);
  shares_->Change(Tenant{2}, {});
  EXPECT_NEAR(LaneSeconds(clients, 3)[2][2], 50, 2);
}

TEST_F(TenantSharesTest, ASessionThatLowersItselfGetsLessOfItsTenantsPart) {
  std::vector<Client> clients = {Add(1, kMs / 10), Add(1, kMs / 10), Add(2, kMs / 10)};
  shares_->SetWeight(*clients[1].account, WeightOfNice(5));
  RunLaneFor(clients, 20 * kSecond);
  EXPECT_NEAR(Part(clients, 2, 1), 0.5, 0.01);
  EXPECT_NEAR(Part(clients, 1, 1) / Part(clients, 0, 2), 0.32768 / 1.32768, 0.01);
}

TEST_F(TenantSharesTest, ManyChangesDoNotRefillACap) {
  std::vector<Client> clients = {Add(1, kMs / 10, 0, {.most = 30 * kPerCent})};
  uint32_t weight = 0;
  Remember(clients);
  const auto seconds = EachSecond(clients, 3, [&](auto& all, uint64_t until) {
    while (now_ns < until) {
      RunLane(all, now_ns + kMs / 10);
      shares_->Change(Tenant{1}, {.weight = 1 + weight++ % 100, .most = 30 * kPerCent});
    }
  });
  for (const auto& had : seconds) EXPECT_LE(had[0], 30);
}

TEST_F(TenantSharesTest, ATenantGetsNoMoreThanItsCapByComingBack) {
  std::vector<Client> clients = {Add(1, kMs, 0, {.most = 10 * kPerCent})};
  uint64_t gone_ns = 0;
  const uint64_t began = now_ns;
  for (int i = 0; i < 500; ++i) {
    RunLaneFor(clients, 2 * kMs);
    gone_ns += clients[0].had_ns;
    shares_->Remove(*clients[0].account);
    clients[0] = Add(1, kMs, 0, {.most = 10 * kPerCent});
  }
  EXPECT_LE(static_cast<double>(gone_ns), 0.1 * static_cast<double>(now_ns - began) + 2 * kMs);
}

TEST_F(TenantSharesTest, HeldTimesSayTheCause) {
  std::vector<Client> clients = {Add(1, kMs / 10), Add(2, kMs / 5, 0, kBatch), Add(2, kMs / 5, 0, kBatch),
                                 Add(3, kMs / 10, 0, {.most = 10 * kPerCent})};
  RunLaneFor(clients, 2 * kSecond);
  const auto held = [&](size_t client, HeldCause cause) {
    return static_cast<double>(shares_->Held(*clients[client].account).ns[static_cast<size_t>(cause)]) / 1e9;
  };
  // Two sessions that are held back together count once.
  EXPECT_NEAR(held(1, HeldCause::kClass) + held(2, HeldCause::kClass), 1.98, 0.03);
  EXPECT_NEAR(held(3, HeldCause::kCap), 1.7, 0.15);
  EXPECT_NEAR(held(0, HeldCause::kClass), 0.04, 0.01);  // while the class below had its least part
  EXPECT_EQ(held(0, HeldCause::kCap) + held(1, HeldCause::kCap), 0);
}

TEST_F(OnDevice, AClassThatKeepsItBusyGoesFirst) {
  std::vector<Client> clients = {Add(1, kMs / 5, 0, kRealtime), Add(2, kMs, 0, kBatch)};
  auto seconds = DeviceSeconds(clients, 5);
  seconds.erase(seconds.begin());
  for (const auto& had : seconds) {
    EXPECT_GE(had[1], 1.9);
    EXPECT_LE(had[1], 4);
    EXPECT_GT(had[0], 95);
  }
}

TEST_F(OnDevice, ALowerClassFillsWhatIsLeftAndBarelyDelaysRequests) {
  std::vector<Client> clients = {Add(1, kMs / 2, 9 * kMs, kRealtime)};
  for (uint32_t i = 0; i < 8; ++i) clients.push_back(Add(2 + i % 2, kMs / 5, 0, kBatch));
  RunDeviceFor(clients, 5 * kSecond);
  // 9 ms of thinking, and half of work that waits for about 1 ms of theirs.
  EXPECT_GT(clients[0].had_ns, 5 * kSecond / 11 * 9 / 10 / 2);
  EXPECT_GT(Part(clients, 1, 8), 0.93);
  for (size_t i = 1; i < clients.size(); ++i)
    EXPECT_NEAR(Part(clients, i, 1) / Part(clients, 1, 8), 0.125, 0.02);
  EXPECT_GT(shares_->Held(*clients[0].account).for_lower.sum_ns(), 0u);
}

TEST_F(OnDevice, ALowerClassHasOneLongCommandInFlightAtMost) {
  std::vector<Client> clients = {Add(1, kMs / 2, 20 * kMs, kRealtime), Add(2, 3 * kMs, 0, kBatch),
                                 Add(3, 3 * kMs, 0, kBatch)};
  RunDeviceFor(clients, kSecond);
  for (int i = 0; i < 10'000; ++i) {
    RunDeviceFor(clients, 20 * kUs);
    ASSERT_LE(clients[1].work.long_in_flight + clients[2].work.long_in_flight, 1u);
  }
  EXPECT_NEAR(Part(clients, 1, 1) / Part(clients, 1, 2), 0.5, 0.05);
}

// What runs in an executor of its own holds up nobody by what is in flight, and is not held back for that.
TEST_F(OnDevice, ALowerClassThatIsApartHasAsMuchInFlightAsItsQueueTakes) {
  for (const bool apart : {false, true}) {
    std::vector<Client> clients = {Add(1, kMs / 2, 20 * kMs, kRealtime), Add(2, 3 * kMs, 0, kBatch)};
    clients[1].work.apart = apart;
    RunDeviceFor(clients, kSecond);
    uint64_t most = 0;
    for (int i = 0; i < 10'000; ++i) {
      RunDeviceFor(clients, 20 * kUs);
      most = std::max(most, clients[1].work.in_flight_ns);
    }
    EXPECT_EQ(most > 6 * kMs, apart);
    for (const Client& client : clients) shares_->Remove(*client.account);
  }
}

TEST_F(OnDevice, EqualsThatContendHaveLittleInFlight) {
  std::vector<Client> clients = {Add(1, kMs / 10), Add(2, kMs / 10)};
  RunDeviceFor(clients, 100 * kMs);
  EXPECT_LE(clients[0].work.in_flight_ns + clients[1].work.in_flight_ns, 2 * TenantShares::kAmongEqualsNs);
}

TEST_F(OnDevice, OneAloneHasAllThatItsQueueTakes) {
  std::vector<Client> clients = {Add(1, kMs / 10, 0, kBatch)};
  RunDeviceFor(clients, 100 * kMs);
  EXPECT_EQ(clients[0].work.in_flight_ns, 10 * kMs);
}

// A session has many queues, each of which could take as much.
TEST_F(OnDevice, BesideAHigherClassThatIsIdleASessionHasOneWindow) {
  std::vector<Client> clients = {Add(1, kMs / 10, 0, kBatch)};
  RunDeviceFor(clients, 100 * kMs);
  EXPECT_EQ(shares_->Decide(*clients[0].account).window.ns, UINT64_MAX);
  Add(2, kMs, 0, kRealtime);
  RunDeviceFor(clients, 100 * kMs);
  EXPECT_EQ(shares_->Decide(*clients[0].account).window.ns, TenantShares::kBehindNs);
}

TEST_F(OnDevice, ATenantHasItsLeastInEachSecondWhateverTheClasses) {
  std::vector<Client> clients = {
      Add(1, kMs / 10, 0, {.priority = PriorityClass::kBatch, .least = 30 * kPerCent})};
  for (uint32_t i = 0; i < 8; ++i) clients.push_back(Add(10 + i, kMs, 0, kRealtime));
  auto seconds = DeviceSeconds(clients, 6);
  seconds.erase(seconds.begin());
  for (const auto& had : seconds) {
    EXPECT_GE(had[0], 30);
    EXPECT_LE(had[0], 36);
  }
}

// A program that reads a result after each of its steps pauses until its next step arrives.
TEST_F(OnDevice, AShortPauseBelongsToTheWork) {
  constexpr uint64_t kStepNs = 5 * kMs, kPauseNs = 300 * kUs;
  struct Case {
    TimeGrant never_pauses, pauses;
    double least;  // in per cent
  };
  for (const Case& of :
       {Case{{.weight = 30}, {.weight = 70}, 69.5}, Case{{.least = 2850}, {.least = 66 * kPerCent}, 66}}) {
    for (const int burst : {1, 10, 100}) {
      std::vector<Client> clients = {Add(1, 50 * kUs, 0, of.never_pauses),
                                     Add(2, kStepNs / static_cast<uint64_t>(burst), kPauseNs, of.pauses)};
      clients[1].burst = burst;
      auto seconds = DeviceSeconds(clients, 5);
      seconds.erase(seconds.begin());
      for (const auto& had : seconds) {
        EXPECT_GE(had[1], of.least) << burst;
        EXPECT_LE(had[1], 70.5) << burst;
        EXPECT_GE(had[0] + had[1], 99) << burst;
      }
      for (const Client& client : clients) shares_->Remove(*client.account);
    }
  }
}

TEST_F(OnDevice, WhoPausesForLongLeavesTheTimeToOthers) {
  std::vector<Client> clients = {Add(1, 50 * kUs, 0, {.weight = 1}), Add(2, kMs, kMs, {.weight = 10'000})};
  RunDeviceFor(clients, 5 * kSecond);
  EXPECT_GE(Part(clients, 0, 1), 0.5);
  EXPECT_GE(clients[0].had_ns + clients[1].had_ns, 4950 * kMs);
}

TEST_F(OnDevice, ACapHoldsInEachSecondAlsoOnAnIdleDevice) {
  for (const uint64_t command_ns : {kMs / 20, kMs, 5 * kMs}) {
    std::vector<Client> clients;
    for (int i = 0; i < 4; ++i) clients.push_back(Add(1, command_ns, 0, {.most = 30 * kPerCent}));
    auto seconds = DeviceSeconds(clients, 5);
    seconds.erase(seconds.begin());
    for (const auto& had : seconds) {
      EXPECT_LE(had[0] + had[1] + had[2] + had[3], 30.2);
      EXPECT_GE(had[0] + had[1] + had[2] + had[3], 28);
    }
    for (const Client& client : clients) shares_->Remove(*client.account);
  }
}

TEST_F(OnDevice, ASessionThatLowersItselfGetsLess) {
  std::vector<Client> clients = {Add(1, kMs / 10), Add(1, kMs / 10)};
  shares_->SetWeight(*clients[1].account, WeightOfNice(10));
  RunDeviceFor(clients, 20 * kSecond);
  EXPECT_NEAR(Part(clients, 1, 1), 0.1074 / 1.1074, 0.02);
}

TEST_F(OnDevice, SharesHoldOverShortTimes) {
  std::vector<Client> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(Add(1, kMs / 5, 0, {.weight = 30}));
  clients.push_back(Add(2, kMs / 2, 0, {.weight = 70}));
  RunDeviceFor(clients, kSecond);
  int off = 0;
  constexpr int kWindows = 100;
  uint64_t first = 0, all = 0;
  for (int w = 0; w < kWindows; ++w) {
    uint64_t before = 0, after = 0;
    for (int i = 0; i < 8; ++i) before += clients[static_cast<size_t>(i)].had_ns;
    const uint64_t other = clients[8].had_ns;
    RunDeviceFor(clients, 200 * kMs);
    for (int i = 0; i < 8; ++i) after += clients[static_cast<size_t>(i)].had_ns;
    const double part =
        static_cast<double>(after - before) / static_cast<double>(after - before + clients[8].had_ns - other);
    first += after - before;
    all += after - before + clients[8].had_ns - other;
    off += std::abs(part - 0.3) > 0.02;
  }
  EXPECT_LE(off, 1);
  EXPECT_NEAR(static_cast<double>(first) / static_cast<double>(all), 0.3, 0.005);
}

}  // namespace
}  // namespace xpud::scheduler
