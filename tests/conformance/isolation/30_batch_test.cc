// Tenants that try to get more of a device than their claims give them: by many sessions, and, of class
// batch, by long work in every order and number of queues. An interactive client goes on beside them. What
// counts is the device's time and rounds, not the clock, because the machine may be busy.
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "sdk/control/client.h"
#include "tests/conformance/isolation/commands.h"
#include "tests/conformance/isolation/isolation_test.h"

namespace xpud::isolation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr wire::Handle kResult = {1, 1}, kInput = {2, 1};

// A sum over rows of this length, of a tensor of one element that is expanded, in rows that the cores share.
std::vector<std::byte> SumOf(uint64_t length, uint32_t queue = 0) {
  constexpr uint64_t kRows = 64;
  const View out = TensorView(kResult, {kRows, 1});
  const View in = TensorView(kInput, {kRows, length}, ops::DType::kFloat32, 0, {0, 0});
  std::vector<std::byte> command = Execute(ops::RowOf("sum"), ops::DType::kFloat32, {&out, 1}, {&in, 1});
  wire::CommandHeader header;
  std::memcpy(&header, command.data(), sizeof(header));
  header.queue = static_cast<uint16_t>(queue);
  std::memcpy(command.data(), &header, sizeof(header));
  return command;
}
// Some tens of milliseconds, a fraction of one, and microseconds.
std::vector<std::byte> Long(uint32_t queue = 0) { return SumOf(1 << 20, queue); }
std::vector<std::byte> Short() { return SumOf(1 << 13); }
std::vector<std::byte> Tiny(uint32_t queue = 0) { return SumOf(1, queue); }

void PutBuffers(HostileSession& session) {
  session.Put(Allocate(kResult, 256));
  session.Put(Allocate(kInput, 256));
  for (const wire::Handle buffer : {kResult, kInput})
    session.Put(UploadInline(buffer, 0, std::vector<std::byte>(256)));
}

// For each way to drive the device.
class Tenants : public Isolation, public ::testing::WithParamInterface<std::vector<std::string>> {
 protected:
  Tenants() : Isolation(GetParam()) {}
  void SetUp() override {
    if (IsRemote()) GTEST_SKIP() << "doors are sockets of this machine";
  }

  control::Client Operator() const { return *control::Client::Connect(daemon_.socket()); }
  // Returns the door's socket.
  std::string Create(const std::string& key, const std::string& priority) {
    v1::Claim claim;
    claim.set_key(key);
    claim.set_class_(priority);
    const auto created = Operator().CreateClaim(claim);
    EXPECT_TRUE(created.ok()) << created.status();
    return daemon_.directory() + "/claims/" + key + "/xpud.sock";
  }
  // The device time that each claim was charged, at one moment.
  std::map<std::string, double> BusySeconds() const {
    std::map<std::string, double> busy;
    const auto claims = Operator().ListClaims();
    if (!claims.ok()) return busy;
    for (const v1::Claim& claim : claims->claims())
      busy[claim.key()] = static_cast<double>(claim.busy_ns()) / 1e9;
    return busy;
  }
};

TEST_P(Tenants, OfEightSessionsGetNoMoreThanThoseOfOne) {
  innocent_.Signal(SIGSTOP);  // it takes its own part of the device
  constexpr int kMany = 8, kQueued = 3000;
  std::vector<std::unique_ptr<HostileSession>> sessions;
  for (const char* key : {"many", "single"}) {
    const std::string door = Create(key, "interactive");
    for (int i = 0; i < (key == std::string("many") ? kMany : 1); ++i)
      PutBuffers(*sessions.emplace_back(std::make_unique<HostileSession>(door)));
  }
  const std::vector<std::byte> command = Short();
  for (int i = 0; i < kQueued; ++i) {
    for (const auto& session : sessions) session->Put(command);
    if (i % 100 == 0)
      for (const auto& session : sessions) session->Publish();
  }
  const auto before = BusySeconds();
  double many = 0, single = 0;
  EXPECT_TRUE(e2e::Within(seconds(60),
                          [&] {
                            auto now = BusySeconds();
                            many = now["many"] - before.at("many");
                            single = now["single"] - before.at("single");
                            return many + single >= 1;
                          }))
      << many << " and " << single << " s of the device's time";
  const double part = single / (many + single);
  for (const auto& session : sessions)
    EXPECT_LT(session->completion().queues[0].completed.load(), session->sequence()) << "it ran dry";
  std::printf("[ figures  ] beside eight sessions of another claim, one gets %.1f%% of the time\n",
              100 * part);
  // Where queues have threads of their own, those compete for the cores, and time is not what commands cost.
  const bool time_is_cost = GetParam().empty();
  EXPECT_GT(part, time_is_cost ? 0.4 : 0.05);
  EXPECT_LT(part, 0.6);
  sessions.clear();
  innocent_.Signal(SIGCONT);
  for (const char* key : {"many", "single"}) EXPECT_TRUE(Operator().DeleteClaim(key).ok());
  ExpectAsBefore();
}

class Batch : public Tenants {
 protected:
  // Runs `attack` as a process of class batch. While it uses some of the device, an interactive client makes
  // rounds; then one that pauses for longer than its class counts as active does, and nobody else.
  void RunBeside(const char* what, const std::function<void(HostileSession&)>& attack) {
    const std::string door = Create("night", "batch");
    Innocent rare(socket(), Innocent::kSmall, "rare", milliseconds(60));
    rare.Signal(SIGSTOP);
    Child hostile([&] {
      HostileSession session(door, "night");
      PutBuffers(session);
      attack(session);
    });
    const double often = RoundsBeside("night", innocent_);
    innocent_.Signal(SIGSTOP), rare.Signal(SIGCONT);
    const double seldom = RoundsBeside("night", rare);
    innocent_.Signal(SIGCONT);
    std::printf("[ figures  ] beside each second of %s: %.0f rounds, or %.0f with pauses of 60 ms\n", what,
                often, seldom);
    // A third or less of what there is on two busy cores.
    EXPECT_GE(often, GetParam().empty() ? 50 : 5) << what;
    EXPECT_GE(seldom, 5) << what;
    rare.ExpectUnharmed();
    hostile.Kill();
    EXPECT_TRUE(Operator().DeleteClaim("night").ok());
  }

 private:
  // Returns the client's rounds for each second of the device's time that the claim uses, as far as they can
  // be told from a second of it, or many rounds.
  double RoundsBeside(const std::string& key, const Innocent& client) {
    constexpr uint64_t kMany = 500;
    const double device_seconds = InFull() ? 4 : 1;
    EXPECT_TRUE(
        e2e::Within(seconds(60), [&, before = BusySeconds()[key]] { return BusySeconds()[key] > before; }))
        << key << " starves";
    const double used_before = BusySeconds()[key];
    const uint64_t before = client.rounds();
    double used = 0;
    EXPECT_TRUE(e2e::Within(seconds(120),
                            [&] {
                              used = BusySeconds()[key] - used_before;
                              return used >= device_seconds || (used > 0 && client.rounds() > before + kMany);
                            }))
        << key << " starves";
    return static_cast<double>(client.rounds() - before) / used;
  }
};

TEST_P(Batch, ThatFloodsHoldsUpNobody) {
  RunBeside("long work without end", [](HostileSession& session) {
    for (;;) {
      session.Put(Long());
      session.Publish();
    }
  });
  ExpectAsBefore();
}

TEST_P(Batch, ThatPausesAndComesBackHoldsUpNobody) {
  RunBeside("long work after pauses of 55 ms", [](HostileSession& session) {
    for (;;) {
      for (int i = 0; i < 8; ++i) session.Put(Long());
      (void)session.Settle(seconds(60));
      std::this_thread::sleep_for(milliseconds(55));
    }
  });
  ExpectAsBefore();
}

TEST_P(Batch, ThatMixesShortWorkWithLongHoldsUpNobody) {
  RunBeside("short work mixed with long", [](HostileSession& session) {
    for (int i = 0;; ++i) {
      session.Put(i % 8 == 0 ? Long() : i % 8 < 4 ? Short() : Tiny());
      session.Publish();
    }
  });
  ExpectAsBefore();
}

TEST_P(Batch, WithSixtyFourQueuesOfTheHighestPriorityHoldsUpNobody) {
  RunBeside("long work on 64 queues", [](HostileSession& session) {
    for (uint32_t queue = 1; queue < wire::kMaxQueues; ++queue)
      session.Put(CreateQueue(queue, queue % 2 == 0 ? -1 : INT32_MIN));
    for (uint32_t i = 0;; ++i) {
      session.Put(i % 16 == 0 ? Tiny(i % wire::kMaxQueues) : Long(i % wire::kMaxQueues));
      session.Publish();
    }
  });
  ExpectAsBefore();
}

const auto kWays =
    ::testing::Values(std::vector<std::string>{}, std::vector<std::string>{"--asynchronous"},
                      std::vector<std::string>{"--executor", "process", "--batch-executor", "off"});
std::string NameOf(const ::testing::TestParamInfo<std::vector<std::string>>& info) {
  return info.param.empty() ? "Synchronous" : info.param.size() == 1 ? "Asynchronous" : "InAnExecutor";
}
INSTANTIATE_TEST_SUITE_P(EachWay, Tenants, kWays, NameOf);
INSTANTIATE_TEST_SUITE_P(EachWay, Batch, kWays, NameOf);

}  // namespace
}  // namespace xpud::isolation
