// Copies between two devices of one daemon, which the host does not see: CPU devices, which --test-devices
// makes.
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/ops/op_table.h"
#include "sdk/control/client.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/floats.h"
#include "tests/e2e/raw_session.h"
#include "xpud/tensor.h"

namespace xpud::e2e {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

using Flags = std::vector<std::string>;

constexpr milliseconds kSoon{10'000};
constexpr uint64_t kMiB = 1 << 20;

absl::Status Copy(const Floats& source, const Floats& target) {
  return target.queue.CopyFrom(source.queue, source.buffer.handle(), 0, target.buffer.handle(), 0,
                               target.buffer.bytes());
}
// An op that is refused: the numbers are not what they should be.
absl::Status Spoil(const Floats& floats) {
  return floats.queue.Copy(floats.buffer.handle(), floats.buffer.bytes(), floats.buffer.handle(), 0, 4);
}

bool IsAll(const std::vector<float>& values, float value) {
  return std::ranges::all_of(values, [&](float each) { return each == value; });
}
// gmock's matchers take long for so many.
bool IsAll(const Floats& floats, double value) {
  const auto values = floats.Read();
  EXPECT_TRUE(values.ok()) << values.status();
  return values.ok() && IsAll(*values, static_cast<float>(value));
}

Floats Make(const Queue& queue, uint64_t bytes) { return {queue, *queue.Allocate(bytes)}; }
Floats Make(const Queue& queue, uint64_t bytes, float value) {
  Floats made = Make(queue, bytes);
  EXPECT_TRUE(made.Fill(value).ok());
  return made;
}

class Peers : public ::testing::TestWithParam<Flags> {
 protected:
  void SetUp() override {
    Start({});
    session_ = daemon_->Connect();
    if (session_->devices()[0].kind != "cpu") GTEST_SKIP() << "--test-devices concerns CPU devices only";
    ASSERT_EQ(session_->devices().size(), 2u);
  }
  void Start(const Flags& more) {
    Flags flags = GetParam();
    flags.insert(flags.end(), {"--test-devices", "2", "--merge", "tenant"});
    flags.insert(flags.end(), more.begin(), more.end());
    daemon_ = std::make_unique<DaemonProcess>(flags);
  }
  Queue queue(uint32_t device) const { return session_->DefaultQueue(device); }
  bool IsEmpty() const {
    return Within(kSoon, [&] { return daemon_->StatusOf("memory_used_bytes") == 0; });
  }
  bool HasProcesses() const { return !GetParam().empty() && GetParam()[0] == "--executor"; }
  static bool IsRemote() { return std::getenv("XPUD_TEST_REMOTE") != nullptr; }
  static bool IsPlain() { return std::getenv("XPUD_CPU_PLAIN") != nullptr; }

  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<Session> session_;
};

// Over a network, and with a driver without virtual memory, they go by way of the host.
TEST_P(Peers, AreCopiedDirectlyWhereThatIsPossible) {
  const auto direct = queue(1).CopiesDirectly(queue(0));
  ASSERT_TRUE(direct.ok()) << direct.status();
  EXPECT_EQ(*direct, !IsRemote() && !IsPlain());
  EXPECT_EQ(*queue(0).CopiesDirectly(queue(1)), *direct);
  EXPECT_TRUE(absl::IsInvalidArgument(queue(0).CopiesDirectly(queue(0)).status()));
}

// And are counted.
TEST_P(Peers, TellOperatorsWhatWasCopied) {
  if (!*queue(0).CopiesDirectly(queue(1))) GTEST_SKIP() << "they go by way of the host";
  const Floats source = Make(queue(0), kMiB, 3), target = Make(queue(1), kMiB);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Copy(source, target).ok());
  ASSERT_TRUE(queue(1).Synchronize().ok());
  const auto status = control::Client::Connect(daemon_->socket())->GetStatus();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->devices(0).peer_bytes(), 0u);
  EXPECT_EQ(status->devices(1).peer_bytes(), 5 * kMiB);
}

TEST_P(Peers, GetWhatTheOtherHas) {
  for (const uint64_t bytes : {uint64_t{4}, uint64_t{4096}, kMiB, 33 * kMiB}) {
    for (const uint32_t from : {0u, 1u}) {
      const Floats source = Make(queue(from), bytes, 3), target = Make(queue(1 - from), bytes);
      ASSERT_TRUE(source.Add(4).ok());
      const absl::Status copied = Copy(source, target);
      ASSERT_TRUE(copied.ok()) << copied;
      ASSERT_TRUE(target.Add(1).ok());
      EXPECT_TRUE(IsAll(target, 8)) << bytes;
      EXPECT_TRUE(IsAll(source, 7)) << bytes;
    }
  }
}

TEST_P(Peers, KeepTheOrderOfBytesHoweverManyPiecesTheyGoIn) {
  std::vector<float> values((50 * kMiB + 12) / sizeof(float));
  std::iota(values.begin(), values.end(), 0.0F);
  const auto bytes = std::as_bytes(std::span(values));
  const Floats source = Make(queue(0), bytes.size()), target = Make(queue(1), bytes.size());
  ASSERT_TRUE(source.queue.Upload(bytes, source.buffer.handle(), 0).ok());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Copy(source, target).ok());
  const auto found = target.Read();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(*found == values);
}

TEST_P(Peers, CopyPartsOfBuffers) {
  std::vector<float> values(1024);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Floats source = Make(queue(0), 4096, 0), target = Make(queue(1), 4096, -1);
  ASSERT_TRUE(source.queue.Upload(std::as_bytes(std::span(values)), source.buffer.handle(), 0).ok());
  ASSERT_TRUE(
      target.queue.CopyFrom(source.queue, source.buffer.handle(), 40, target.buffer.handle(), 100, 8).ok());
  const std::vector<float> got = *target.Read();
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], i == 25 ? 10 : i == 26 ? 11 : -1) << i;
}

TEST_P(Peers, SourceMayBeOverwrittenAtOnce) {
  const Floats source = Make(queue(0), 8 * kMiB), target = Make(queue(1), 8 * kMiB);
  std::vector<Floats> targets;
  for (int round = 0; round < 30; ++round) {
    ASSERT_TRUE(source.Fill(static_cast<float>(round)).ok());
    ASSERT_TRUE(Copy(source, target).ok());
    ASSERT_TRUE(source.Add(0.5).ok());
    ASSERT_TRUE(source.Fill(-1).ok());
    ASSERT_TRUE(IsAll(target, round));
  }
  EXPECT_TRUE(IsAll(source, -1));
}

// Its memory serves other buffers, which are written at once.
TEST_P(Peers, SourceMayBeFreedAtOnce) {
  const Floats target = Make(queue(1), 2 * kMiB);
  for (int round = 0; round < 60; ++round) {
    {
      const Floats source = Make(queue(0), 2 * kMiB, static_cast<float>(round));
      ASSERT_TRUE(Copy(source, target).ok());
    }
    const Floats next = Make(queue(0), 2 * kMiB, -1);
    ASSERT_TRUE(IsAll(target, round));
  }
  EXPECT_TRUE(queue(0).Synchronize().ok());
}

// A source that is one piece of memory with another program's, and a target that is, too.
TEST_P(Peers, CopyToAndFromMergedMemory) {
  if (IsRemote()) GTEST_SKIP() << "a gateway's sessions have no control socket";
  constexpr uint64_t kBytes = 2 * kMiB;
  auto control = control::Client::Connect(daemon_->socket());
  const auto are_merged = [&] {
    const auto memory = control->ListMemory();
    if (!memory.ok()) return false;
    uint64_t saved = 0;
    for (const v1::TenantMemory& tenant : memory->tenants()) saved += tenant.saved_bytes();
    return saved == 2 * kBytes;
  };
  const auto others = daemon_->Connect();
  for (int round = 0; round < 24; ++round) {
    const auto value = static_cast<float>(round);
    const Floats source = Make(queue(0), kBytes, value), target = Make(queue(1), kBytes, -value - 1);
    const Floats same = Make(others->DefaultQueue(0), kBytes, value);
    const Floats spare = Make(others->DefaultQueue(1), kBytes, -value - 1);
    // Otherwise they become one while they are copied, or not at all.
    if (round % 4 == 0) ASSERT_TRUE(Within(milliseconds(60'000), are_merged)) << round;
    const absl::Status copied =
        target.queue.CopyFrom(source.queue, source.buffer.handle(), 0, target.buffer.handle(), kMiB, kMiB);
    ASSERT_TRUE(copied.ok()) << copied;
    ASSERT_TRUE(source.Add(0.5).ok());
    const std::vector<float> got = *target.Read();
    const auto half = got.begin() + kMiB / sizeof(float);
    EXPECT_TRUE(IsAll({got.begin(), half}, -value - 1)) << round;
    EXPECT_TRUE(IsAll({half, got.end()}, value)) << round;
    EXPECT_TRUE(IsAll(source, value + 0.5)) << round;
    EXPECT_TRUE(IsAll(same, value)) << round;
    EXPECT_TRUE(IsAll(spare, -value - 1)) << round;
  }
}

TEST_P(Peers, SourceMayBeTheTargetOfTheWayBack) {
  const Floats a = Make(queue(0), kMiB, 0), b = Make(queue(1), kMiB, 0);
  constexpr int kRounds = 150;
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_TRUE(Copy(a, b).ok());
    ASSERT_TRUE(b.Add(1).ok());
    ASSERT_TRUE(Copy(b, a).ok());
    ASSERT_TRUE(a.Add(1).ok());
  }
  EXPECT_TRUE(IsAll(a, 2 * kRounds));
  EXPECT_TRUE(IsAll(b, 2 * kRounds - 1));
}

// More than a session may have open, and than a ring holds.
TEST_P(Peers, ManyCopiesWaitForEachOther) {
  constexpr int kCopies = 3 * wire::kMaxLoans;
  const Floats a = Make(queue(0), 64, 0), b = Make(queue(1), 64, 0);
  const Floats sum = Make(queue(1), 64, 0);
  for (int i = 0; i < kCopies; ++i) {
    ASSERT_TRUE(a.Add(1).ok());
    ASSERT_TRUE(Copy(a, b).ok());
  }
  EXPECT_TRUE(IsAll(b, kCopies));
}

// Threads with queues of their own, whose copies meet in the same rings.
TEST_P(Peers, ManyQueuesCopyBothWays) {
  constexpr int kThreads = 4, kRounds = 120;
  std::array<std::thread, kThreads> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < kThreads; ++t) {
    threads[static_cast<size_t>(t)] = std::thread([&, t] {
      const Queue queues[] = {*session_->CreateQueue(0), *session_->CreateQueue(1)};
      const uint64_t bytes = 4096u << t;
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<Floats> floats;
      std::vector<double> expected;
      for (size_t i = 0; i < 6; ++i) {
        floats.push_back(Make(queues[i % 2], bytes, static_cast<float>(i)));
        expected.push_back(static_cast<double>(i));
      }
      for (int round = 0; round < kRounds; ++round) {
        const size_t to = random() % 6, from = (to + 1 + 2 * (random() % 3)) % 6;
        EXPECT_TRUE(floats[from].Add(1).ok());
        expected[to] = ++expected[from];
        EXPECT_TRUE(Copy(floats[from], floats[to]).ok());
        if (random() % 8 == 0) {
          EXPECT_TRUE(floats[from].Fill(static_cast<float>(round)).ok());
          expected[from] = round;
        }
        if (random() % 8 == 0)
          floats[from] = Make(queues[from % 2], bytes, static_cast<float>(expected[from]));
      }
      bool good = true;
      for (size_t i = 0; i < 6; ++i) {
        good &= IsAll(floats[i], expected[i]);
      }
      right += good;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right.load(), kThreads);
}

TEST_P(Peers, PoisonOfTheSourceIsTheTargetsError) {
  const Floats source = Make(queue(0), 4096, 1), target = Make(queue(1), 4096, 2),
               other = Make(queue(1), 4096, 3);
  ASSERT_TRUE(Spoil(source).ok());
  ASSERT_TRUE(Copy(source, target).ok());
  const absl::Status read = target.Read().status();
  EXPECT_THAT(std::string(read.message()), HasSubstr("leaves its buffer"));
  EXPECT_TRUE(IsAll(other, 3));
  EXPECT_THAT(std::string(queue(0).Synchronize().message()), HasSubstr("leaves its buffer"));
  // Both errors are reported: what they had is valid again.
  EXPECT_TRUE(IsAll(source, 1));
  EXPECT_TRUE(IsAll(target, 2));
  ASSERT_TRUE(Copy(source, target).ok());
  EXPECT_TRUE(IsAll(target, 1));
}

// A GPU reports a bad index after later commands have run.
TEST_P(Peers, BadIndexBeforeTheCopyIsTheTargetsError) {
  const Queue here = queue(0), there = queue(1);
  const Floats target = Make(there, 64);
  {
    const Tensor table = *Tensor::FromHost(here, std::vector<float>(64, 1), {4, 16});
    const Tensor index = *Tensor::FromHost(here, std::vector<int64_t>{7}, {1});
    const Floats row = Make(here, 64);
    const int64_t sizes[] = {1, 16};
    TensorRef out;
    out.kind = TensorRef::Kind::kTensor;
    out.rank = 2;
    out.buffer = row.buffer.handle();
    out.sizes = sizes;
    const TensorRef outputs[] = {out}, inputs[] = {table.ref(), index.ref()};
    OpCall call;
    call.row = &ops::RowOf("embedding");
    call.outputs = outputs;
    call.inputs = inputs;
    ASSERT_TRUE(here.Execute(call).ok());
    ASSERT_TRUE(Copy(row, target).ok());
  }  // freed before the error is known
  EXPECT_THAT(std::string(target.Read().status().message()), HasSubstr("index"));
  EXPECT_FALSE(here.Synchronize().ok());
}

TEST_P(Peers, EndOfASessionLeavesNothing) {
  for (int round = 0; round < 10; ++round) {
    auto other = daemon_->Connect("other");
    const Floats a = Make(other->DefaultQueue(0), 4 * kMiB, 1), b = Make(other->DefaultQueue(1), 4 * kMiB, 2);
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(Copy(a, b).ok());
      ASSERT_TRUE(Copy(b, a).ok());
    }
    other.reset();
  }
  EXPECT_TRUE(IsEmpty());
  const Floats a = Make(queue(0), 4096, 5), b = Make(queue(1), 4096);
  ASSERT_TRUE(Copy(a, b).ok());
  EXPECT_TRUE(IsAll(b, 5));
}

// A claim whose memory exceeds each device's: chunks leave and return between the copies, but not what is
// lent.
TEST_P(Peers, MemoryThatMovesIsCopiedRight) {
  if (IsRemote()) GTEST_SKIP() << "claims' doors are of this machine";
  if (IsPlain()) GTEST_SKIP() << "a driver without virtual memory";
  session_.reset();
  Start({"--test-device-memory", "128MiB", "--move-out", "1GiB"});
  v1::Claim claim;
  claim.set_key("large");
  claim.set_memory_most_bytes(512 * kMiB);
  ASSERT_TRUE(control::Client::Connect(daemon_->socket())->CreateClaim(claim).ok());
  ConnectOptions options;
  options.address = daemon_->directory() + "/claims/large/xpud.sock";
  options.start_daemon = false;
  session_ = *Session::Connect(options);
  constexpr size_t kBlocks = 10;
  std::vector<Floats> blocks[2];
  std::vector<double> expected[2];
  for (uint32_t device = 0; device < 2; ++device) {
    for (size_t i = 0; i < kBlocks; ++i) {
      expected[device].push_back(static_cast<double>(100 * device + i));
      blocks[device].push_back(Make(queue(device), 15 * kMiB, static_cast<float>(expected[device].back())));
    }
  }
  const auto memory = control::Client::Connect(daemon_->socket())->ListMemory();
  ASSERT_TRUE(memory.ok() && memory->tenants_size() == 2) << memory.status();
  for (const v1::TenantMemory& each : memory->tenants()) EXPECT_GT(each.moved_out_bytes(), 0u);
  std::mt19937 random(7);
  for (int round = 0; round < 40; ++round) {
    const size_t to = random() % 2, i = random() % kBlocks, j = random() % kBlocks;
    ASSERT_TRUE(blocks[1 - to][j].Add(1).ok());
    expected[to][i] = ++expected[1 - to][j];
    ASSERT_TRUE(Copy(blocks[1 - to][j], blocks[to][i]).ok());
    if (random() % 4 == 0) {
      ASSERT_TRUE(blocks[1 - to][j].Fill(static_cast<float>(round)).ok());
      expected[1 - to][j] = round;
    }
  }
  for (uint32_t device = 0; device < 2; ++device) {
    for (size_t i = 0; i < kBlocks; ++i)
      EXPECT_TRUE(IsAll(blocks[device][i], expected[device][i])) << device << i;
  }
}

// ---- what only raw commands can say

wire::LendCommand Lend(uint64_t loan, uint64_t bytes = 64, uint64_t offset = 0,
                       wire::Handle buffer = {1, 1}) {
  return {HeaderOf<wire::LendCommand>(wire::CommandKind::kLend), buffer, offset, bytes, loan};
}
wire::CopyFromCommand CopyFrom(uint64_t loan, uint64_t bytes = 64, uint64_t offset = 0, uint32_t source = 0,
                               wire::Handle target = {1, 1}) {
  return {
      HeaderOf<wire::CopyFromCommand>(wire::CommandKind::kCopyFrom), target, offset, bytes, loan, source, 0};
}
const wire::AllocateCommand kAllocate = {
    HeaderOf<wire::AllocateCommand>(wire::CommandKind::kAllocate), {1, 1}, 64};
const wire::FreeCommand kFree = {HeaderOf<wire::FreeCommand>(wire::CommandKind::kFree), {1, 1}};

TEST_P(Peers, BreachesEndTheirSession) {
  if (IsRemote()) GTEST_SKIP() << "a raw session is on this machine";
  const std::pair<std::function<void(RawSession&)>, const char*> breaches[] = {
      {[](RawSession& raw) { raw.Send(Lend(2, 64, 0, {2, 1})); }, "does not exist"},
      {[](RawSession& raw) { raw.Send(Lend(2, 0)); }, "is empty or leaves its buffer"},
      {[](RawSession& raw) { raw.Send(Lend(2, 65)); }, "is empty or leaves its buffer"},
      {[](RawSession& raw) { raw.Send(Lend(2, 64, 1)); }, "is empty or leaves its buffer"},
      {[](RawSession& raw) { raw.Send(Lend(2, ~0ull, 8)); }, "is empty or leaves its buffer"},
      {[](RawSession& raw) { raw.Send(Lend(1)); }, "does not come after"},
      {[](RawSession& raw) { raw.Send(Lend(3)); }, "does not come after"},
      {[](RawSession& raw) { raw.Send(Lend(0)); }, "does not come after"},
      {[](RawSession& raw) { raw.Send(CopyFrom(1), 1); }, "has ended"},
      {[](RawSession& raw) { raw.Send(CopyFrom(0), 1); }, "has ended"},
      {[](RawSession& raw) { raw.Send(CopyFrom(1, 64, 0, 1), 1); }, "or its own one"},
      {[](RawSession& raw) { raw.Send(CopyFrom(1, 64, 0, 2), 1); }, "has not opened"},
      {[](RawSession& raw) { raw.Send(CopyFrom(1, 64, 0, 77), 1); }, "has not opened"},
      {[](RawSession& raw) { raw.Send(CopyFrom(2, 65), 1); }, "leaves its buffer"},
      {[](RawSession& raw) { raw.Send(CopyFrom(2, 64, ~0ull), 1); }, "leaves its buffer"},
      {[](RawSession& raw) { raw.Send(CopyFrom(2, 64, 0, 0, {9, 1}), 1); }, "does not exist"},
      {[](RawSession& raw) {
         raw.Send(Lend(2));
         raw.Send(CopyFrom(2, 32), 1);
       },
       "a copy of 32 bytes names loan 2 of 64"},
  };
  for (const auto& [breach, why] : breaches) {
    RawSession raw(daemon_->address());
    raw.Open(1);
    raw.Send(kAllocate);
    raw.Send(kAllocate, 1);
    raw.Send(Lend(1));
    raw.Send(CopyFrom(1), 1);
    ASSERT_TRUE(raw.Synchronize().ok() && raw.Synchronize(1).ok());
    breach(raw);
    EXPECT_THAT(raw.Fate(), HasSubstr(why));
  }
  // A device that was not opened.
  RawSession raw(daemon_->address());
  raw.Send(kAllocate);
  raw.Send(CopyFrom(1, 64, 0, 1));
  EXPECT_THAT(raw.Fate(), HasSubstr("has not opened"));
  const Floats a = Make(queue(0), 4096, 5), b = Make(queue(1), 4096);
  ASSERT_TRUE(Copy(a, b).ok());
  EXPECT_TRUE(IsAll(b, 5));
}

// A loan whose copy never comes, a copy whose loan never comes, and too many loans hold up their own ring.
TEST_P(Peers, WhatNeverComesHoldsUpItsOwnRingOnly) {
  if (IsRemote()) GTEST_SKIP() << "a raw session is on this machine";
  {
    RawSession raw(daemon_->address());
    raw.Open(1);
    raw.Send(kAllocate);
    raw.Send(kAllocate, 1);
    for (uint64_t loan = 1; loan <= wire::kMaxLoans; ++loan) raw.Send(Lend(loan));
    ASSERT_TRUE(raw.Synchronize().ok());
    raw.Send(Lend(wire::kMaxLoans + 1));         // waits
    raw.Send(CopyFrom(wire::kMaxLoans + 1), 1);  // waits for that
    const Floats a = Make(queue(0), 4096, 5), b = Make(queue(1), 4096);
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(Copy(a, b).ok());
      ASSERT_TRUE(Copy(b, a).ok());
    }
    EXPECT_TRUE(IsAll(a, 5));
    EXPECT_FALSE(raw.IsDone(0) || raw.IsDone(1));
    EXPECT_TRUE(raw.transport().status().ok());
  }
  {
    RawSession raw(daemon_->address());
    raw.Open(1);
    raw.Send(kAllocate);
    raw.Send(kAllocate, 1);
    for (uint64_t loan = 1; loan <= wire::kMaxLoans + 1; ++loan) raw.Send(Lend(loan));
    for (uint64_t loan = wire::kMaxLoans; loan > wire::kMaxLoans - 10; --loan)
      raw.Send(CopyFrom(loan), 1);  // in another order
    EXPECT_TRUE(raw.Synchronize(0).ok() && raw.Synchronize(1).ok());
    raw.Send(kFree);  // waits for the other copies, which never come
    EXPECT_TRUE(raw.Synchronize(0).ok());
  }
  session_.reset();
  EXPECT_TRUE(IsEmpty());
}

// ---- executors that are lost

TEST_P(Peers, CopiesSurviveLostExecutors) {
  if (!HasProcesses()) GTEST_SKIP() << "the daemon runs the devices itself";
  std::atomic<bool> done{false};
  std::thread killer([&] {
    for (int i = 0; !done.load() && i < 8; ++i) {
      SignalProcess(daemon_->AwaitExecutor(), SIGKILL);  // of the first device that has one
      std::this_thread::sleep_for(milliseconds(100));
    }
  });
  // Nothing is updated in place, so nothing may be lost.
  const Queue queues[] = {queue(0), queue(1)};
  constexpr int64_t kCount = 1 << 18;
  Tensor x = *Tensor::FromHost(queues[0], std::vector<float>(kCount, 0), {kCount});
  const std::vector<Tensor> ones = {*Tensor::FromHost(queues[0], std::span<const float>({1}), {1}),
                                    *Tensor::FromHost(queues[1], std::span<const float>({1}), {1})};
  constexpr int kRounds = 400;
  int wrong = 0;
  for (int round = 1; round <= kRounds; ++round) {
    const size_t to = static_cast<size_t>(round) % 2;
    const Tensor there = *Tensor::Empty(queues[to], ops::DType::kFloat32, {kCount});
    ASSERT_TRUE(
        queues[to]
            .CopyFrom(queues[1 - to], x.ref().buffer, 0, there.ref().buffer, 0, kCount * sizeof(float))
            .ok());
    x = *Add(there, ones[to]);
    if (round % 20 != 0) continue;
    const auto values = x.ToFloats();
    EXPECT_TRUE(values.ok()) << values.status();
    wrong += !values.ok() || !IsAll(*values, static_cast<float>(round));
  }
  done = true;
  killer.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(daemon_->StatusOf("executors_replaced"), 0);
}

std::string NameOf(const ::testing::TestParamInfo<Flags>& info) {
  constexpr const char* kNames[] = {"InTheDaemon", "Asynchronous", "InProcesses"};
  return kNames[info.index];
}

INSTANTIATE_TEST_SUITE_P(, Peers,
                         ::testing::Values(Flags{}, Flags{"--asynchronous"}, Flags{"--executor", "process"}),
                         NameOf);

}  // namespace
}  // namespace xpud::e2e
