// Which chunks are on a device, over a device that has only memory: contents are real, time is virtual.
#include "daemon/memory/residency.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/lane/testing/memory_device.h"
#include "daemon/memory/ended_tenants.h"
#include "daemon/memory/pool.h"

namespace xpud::memory {
namespace {

constexpr uint64_t kMebibyte = uint64_t{1} << 20, kMillisecond = 1'000'000;
constexpr uint64_t kDeviceBytes = 64 * kMebibyte;
constexpr uint64_t kBlock = 15;  // MiB, in a chunk of 16 MiB: the device has room for four

// A file on a disk that may be full, or fail. Its contents are real.
class BadFile final : public MovedOutFile {
 public:
  BadFile() : MovedOutFile(UniqueFd(open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600))) {}
  std::atomic<int> write_error{0}, read_error{0};
  std::atomic<bool> is_short{false};
  mutable std::atomic<int> writes{0}, reads{0};

 private:
  ssize_t WriteSome(std::span<const std::byte> bytes, uint64_t offset) const override {
    ++writes;
    if (Fails(write_error)) return -1;
    return MovedOutFile::WriteSome(Part(bytes), offset);
  }
  ssize_t ReadSome(std::span<std::byte> bytes, uint64_t offset) const override {
    ++reads;
    if (Fails(read_error)) return -1;
    return MovedOutFile::ReadSome(Part(bytes), offset);
  }
  static bool Fails(int error) {
    errno = error;
    return error != 0;
  }
  template <typename Span>
  Span Part(Span bytes) const {
    return is_short ? bytes.first(std::min<size_t>(bytes.size(), 1'000'001)) : bytes;
  }
};

class ResidencyTest : public testing::Test {
 protected:
  // A session of a tenant of its own. It computes at once.
  class Program final : public User {
   public:
    Program(ResidencyTest& test, uint32_t uid) : test_(test), tenant_{uid, ""} {
      account_ = &test.pool_->Open(tenant_, &credit_, &claim_);
      account_->arena->AddUser(*this);
    }
    ~Program() {
      for (const Block& block : blocks_) test_.pool_->Free(block);
      account_->arena->RemoveUser(*this);
      test_.pool_->Close(*account_);
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    absl::Status Allocate(uint64_t mebibytes) {
      auto block = test_.pool_->Allocate(mebibytes * kMebibyte, *account_);
      if (!block.ok()) return block.status();
      blocks_.push_back(*block);
      return absl::OkStatus();
    }
    void AllocateAll(int count, uint64_t mebibytes) {
      for (int i = 0; i < count; ++i) ASSERT_TRUE(Allocate(mebibytes).ok()) << i;
    }
    // Whether a command that uses this block may run.
    absl::StatusOr<bool> Hold(size_t i, bool writes) {
      if (!arena().is_watched()) return true;
      const Residency::Operand operand{blocks_[i].address, writes};
      auto held = test_.pool_->residency().Hold(arena(), *this, {0, sequence_ + 1}, {&operand, 1});
      if (held.ok() && *held) ++sequence_;
      return held;
    }
    // Waits until the command has run. Returns after how long.
    uint64_t Await(size_t i, bool writes) {
      at_work_ = true;
      const uint64_t began = test_.now_ns_;
      for (;;) {
        const auto held = Hold(i, writes);
        EXPECT_TRUE(held.ok()) << held.status();
        if (!held.ok() || *held) break;
        EXPECT_LT(test_.now_ns_ - began, 60'000 * kMillisecond) << "it waits for ever";
        if (test_.now_ns_ - began >= 60'000 * kMillisecond) break;
        test_.Pass();
      }
      return test_.now_ns_ - began;
    }
    uint64_t Write(size_t i, int value) {
      const uint64_t waited = Await(i, /*writes=*/true);
      std::memset(blocks_[i].address, value, blocks_[i].bytes);
      return waited;
    }
    void ExpectHas(size_t i, int value) {
      Await(i, /*writes=*/false);
      const auto* const bytes = reinterpret_cast<const unsigned char*>(blocks_[i].address);
      for (uint64_t at = 0; at < blocks_[i].bytes; at += 4096)
        ASSERT_EQ(bytes[at], value) << i << " at " << at;
    }
    void Free(size_t i) {
      test_.pool_->Free(blocks_[i]);
      blocks_.erase(blocks_.begin() + static_cast<ptrdiff_t>(i));
    }
    void Rest() { at_work_ = false; }
    Arena& arena() { return *account_->arena; }
    const Block& block(size_t i) const { return blocks_[i]; }
    const Tenant& tenant() const { return tenant_; }

    bool HasCompleted(const Mark& mark) const override { return mark.sequence <= sequence_ - unfinished_; }
    std::vector<Mark> Unfinished() override {
      if (unfinished_ == 0) return {};
      return {{0, sequence_}};
    }
    bool IsAtWork() const override { return at_work_; }
    uint64_t sequence_ = 0, unfinished_ = 0;
    bool at_work_ = false;

   private:
    ResidencyTest& test_;
    const Tenant tenant_;
    std::atomic<uint64_t> credit_{0}, claim_{0};
    Ledger::Account* account_;
    std::vector<Block> blocks_;
  };

  void SetUp() override { Make(1024 * kMebibyte); }
  void Make(uint64_t host_bytes) {
    pool_ = std::make_unique<Pool>(device_, 0, Residency::Options{.host_limit = host_bytes});
  }
  // Beyond the host, a file.
  void Make(uint64_t host_bytes, uint64_t file_bytes) {
    file_ = std::make_shared<BadFile>();
    pool_ = nullptr;
    troubles_ = 0;
    pool_ = std::make_unique<Pool>(device_, 0,
                                   Residency::Options{.host_limit = host_bytes,
                                                      .files = {file_, 0, file_bytes},
                                                      .on_trouble = [this](const auto&) { ++troubles_; }});
  }
  uint64_t InFiles() const { return pool_->residency().store().files().used_bytes(); }
  // A tenth of a millisecond, in which moves end, and what the host does in the background.
  void Pass() {
    now_ns_ += kMillisecond / 10;
    device_.Poll();
    pool_->residency().Poll(now_ns_);
    const HostStore& store = pool_->residency().store();
    if (!store.is_busy() && !store.files().is_busy()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pool_->residency().Poll(now_ns_);
  }
  void PassFor(uint64_t milliseconds) {
    for (const uint64_t until = now_ns_ + milliseconds * kMillisecond; now_ns_ < until;) Pass();
  }

  lane::MemoryDevice device_{/*asynchronous=*/false, kDeviceBytes};
  std::shared_ptr<BadFile> file_;
  int troubles_ = 0;
  std::unique_ptr<Pool> pool_;
  uint64_t now_ns_ = 1'000'000 * kMillisecond;
};

TEST_F(ResidencyTest, NothingIsWatchedWhileAllFits) {
  Program a(*this, 1), b(*this, 2);
  a.AllocateAll(2, kBlock);
  b.AllocateAll(1, kBlock);
  PassFor(20);
  EXPECT_FALSE(a.arena().is_watched());
  EXPECT_FALSE(pool_->residency().is_under_way());
  EXPECT_EQ(pool_->residency().store().taken_bytes(), 0u);
}

// A tenant alone gets out-of-memory where it allocates, as it does without any host memory.
TEST_F(ResidencyTest, TenantAloneHasWhatTheDeviceHas) {
  Program a(*this, 1);
  a.AllocateAll(4, kBlock);
  EXPECT_TRUE(absl::IsResourceExhausted(a.Allocate(kBlock)));
  EXPECT_FALSE(a.arena().is_watched());
}

TEST_F(ResidencyTest, IdleTenantsMemoryLeavesAndComesBackWithItsContents) {
  Program a(*this, 1), b(*this, 2);
  a.AllocateAll(3, kBlock);
  for (size_t i = 0; i < 3; ++i) a.Write(i, static_cast<int>(i) + 1);
  a.Rest();
  b.AllocateAll(3, kBlock);
  for (size_t i = 0; i < 3; ++i) b.Write(i, static_cast<int>(i) + 101);
  EXPECT_LT(a.arena().on_device(), a.arena().chunk_bytes());
  EXPECT_EQ(b.arena().on_device(), b.arena().chunk_bytes());
  for (size_t i = 0; i < 3; ++i) b.ExpectHas(i, static_cast<int>(i) + 101);
  b.Rest();
  PassFor(200);
  for (size_t i = 0; i < 3; ++i) a.ExpectHas(i, static_cast<int>(i) + 1);
  EXPECT_EQ(a.arena().on_device(), a.arena().chunk_bytes());
  EXPECT_LE(a.arena().on_device() + b.arena().on_device(), kDeviceBytes);
}

TEST_F(ResidencyTest, WhatWasNotWrittenLeavesWithoutACopy) {
  Program a(*this, 1), b(*this, 2);
  a.AllocateAll(3, kBlock);
  for (size_t i = 0; i < 3; ++i) a.Write(i, 7);
  a.Rest();
  b.AllocateAll(3, kBlock);
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < 3; ++i) b.Write(i, round);
    b.Rest();
    PassFor(200);
    for (size_t i = 0; i < 3; ++i) a.ExpectHas(i, 7);
    // The copies in the host are spoilt: a chunk that is copied again would get its contents from the device.
    for (const auto& [address, chunk] : a.arena().chunks()) EXPECT_EQ(chunk->changed, chunk->host.empty());
    a.Rest();
    PassFor(200);
  }
}

// As other counters of a tenant do.
TEST_F(ResidencyTest, CountersOfMovesOutliveTheTenantsSessions) {
  auto a = std::make_unique<Program>(*this, 1);
  a->AllocateAll(3, kBlock);
  for (size_t i = 0; i < 3; ++i) a->Write(i, 1);
  a->Rest();
  Program b(*this, 2);
  b.AllocateAll(3, kBlock);
  for (size_t i = 0; i < 3; ++i) b.Write(i, 2);
  b.Rest();
  PassFor(200);
  for (size_t i = 0; i < 3; ++i) a->ExpectHas(i, 1);
  a->arena().stalls().Add(5000);
  const Tenant tenant = a->tenant();
  const TenantMemory before = pool_->Usage().tenants.at(tenant);
  ASSERT_GT(before.moved.in, 0u);
  ASSERT_GT(before.moved.out, 0u);
  a = nullptr;
  const DeviceMemory ended = pool_->Usage();
  EXPECT_FALSE(ended.tenants.contains(tenant));
  ASSERT_TRUE(ended.ended.contains(tenant.Text()));
  EXPECT_EQ(ended.ended.at(tenant.Text()).in, before.moved.in);
  a = std::make_unique<Program>(*this, 1);
  const DeviceMemory again = pool_->Usage();
  EXPECT_TRUE(again.ended.empty());
  EXPECT_EQ(again.tenants.at(tenant).moved.in, before.moved.in);
  EXPECT_EQ(again.tenants.at(tenant).moved.out, before.moved.out);
  EXPECT_EQ(again.tenants.at(tenant).stalls.sum_ns(), before.stalls.sum_ns());
}

TEST(EndedTenants, ThoseThatLeftFirstAreCountedTogether) {
  EndedTenants ended;
  const auto count_of = [&](const std::string& name) {
    const auto all = ended.Counters();
    const auto found = all.find(name);
    return found == all.end() ? 0 : found->second.in;
  };
  for (uint32_t uid = 0; uid < EndedTenants::kMax; ++uid) ended.Add({uid, ""}, {.in = 1000 + uid});
  EXPECT_EQ(ended.Counters().size(), EndedTenants::kMax);
  ended.Add({0, "moved nothing"}, {});
  EXPECT_EQ(count_of(TenantTotals::kOthers), 0u);
  EXPECT_EQ(ended.Take({0, ""}).in, 1000u);
  ended.Add({0, ""}, {.in = 1000});  // the last that left
  ended.Add({5000, ""}, {.in = 7});
  ended.Add({5001, ""}, {.in = 8});
  EXPECT_EQ(count_of(TenantTotals::kOthers), 1001u + 1002u);
  EXPECT_EQ(count_of("uid:0"), 1000u);
  EXPECT_EQ(count_of("uid:1"), 0u);
  EXPECT_EQ(count_of("uid:5001"), 8u);
  EXPECT_EQ(ended.Counters().size(), EndedTenants::kMax + 1);
}

// Neither of two that are at work starves, and their contents are right whenever they run.
TEST_F(ResidencyTest, TenantsAtWorkTakeTurns) {
  Program a(*this, 1), b(*this, 2), c(*this, 3);
  uint64_t longest = 0, ran[3] = {};
  Program* const programs[] = {&a, &b, &c};
  for (Program* const each : programs) {
    each->AllocateAll(2, kBlock);
    each->at_work_ = true;
  }
  uint64_t last_ran[3] = {now_ns_, now_ns_, now_ns_};
  size_t next[3] = {};
  int written[3][2] = {};
  const uint64_t until = now_ns_ + 2000 * kMillisecond;
  while (now_ns_ < until) {
    for (size_t p = 0; p < 3; ++p) {
      const size_t i = next[p];
      const auto held = programs[p]->Hold(i, /*writes=*/true);
      ASSERT_TRUE(held.ok()) << held.status();
      if (!*held) continue;
      auto* const bytes = reinterpret_cast<unsigned char*>(programs[p]->block(i).address);
      ASSERT_EQ(bytes[0], written[p][i]) << p << " " << i;
      ASSERT_EQ(bytes[kBlock * kMebibyte - 1], written[p][i]) << p << " " << i;
      written[p][i] = (written[p][i] + 1) % 251;
      bytes[0] = bytes[kBlock * kMebibyte - 1] = static_cast<unsigned char>(written[p][i]);
      next[p] = 1 - i;
      ++ran[p];
      longest = std::max(longest, now_ns_ - last_ran[p]);
      last_ran[p] = now_ns_;
    }
    Pass();
  }
  for (const uint64_t count : ran) EXPECT_GT(count, 2000u) << "of 20000 that one alone would run";
  EXPECT_LT(longest, 500 * kMillisecond);
  EXPECT_GT(pool_->residency().turns(), 10u);
  EXPECT_LT(pool_->residency().turns(), 90u) << "two at a time, a turn is at least 50 ms";
}

// A part of its memory comes at once, and the rest when another turn is over: the wait for that makes no turn
// longer.
TEST_F(ResidencyTest, TurnsAreAsLongAsTheExchangeTakes) {
  Program a(*this, 1), b(*this, 2), c(*this, 3);
  Program* const programs[] = {&a, &b, &c};
  for (Program* const each : programs) {
    each->AllocateAll(3, kBlock);
    each->at_work_ = true;
  }
  size_t next[3] = {};
  uint64_t longest_turn = 0;
  for (const uint64_t until = now_ns_ + 4000 * kMillisecond; now_ns_ < until; Pass()) {
    for (size_t p = 0; p < 3; ++p) {
      const auto held = programs[p]->Hold(next[p] % 3, /*writes=*/true);
      ASSERT_TRUE(held.ok()) << held.status();
      if (*held) ++next[p];
    }
    longest_turn = std::max(longest_turn, pool_->residency().turn_ns());
  }
  EXPECT_GT(pool_->residency().turns(), 40u);
  EXPECT_EQ(longest_turn, 50 * kMillisecond) << "the shortest: a move takes a tenth of a millisecond";
}

TEST_F(ResidencyTest, GuaranteedMemoryStays) {
  Program a(*this, 1), b(*this, 2);
  pool_->ledger().SetGuarantee(a.tenant(), 32 * kMebibyte);
  a.AllocateAll(2, kBlock);
  for (size_t i = 0; i < 2; ++i) a.Write(i, 5);
  a.Rest();
  PassFor(500);
  b.AllocateAll(2, kBlock);
  for (size_t i = 0; i < 2; ++i) b.Write(i, 6);
  EXPECT_EQ(a.arena().on_device(), a.arena().chunk_bytes());
  pool_->ledger().SetGuarantee(a.tenant(), 0);
}

// A claim for more than the device has: its chunks take turns, each is brought when it is needed.
TEST_F(ResidencyTest, TenantLargerThanTheDeviceExchangesItsChunks) {
  Program a(*this, 1);
  pool_->ledger().SetTenantQuota(a.tenant(), 2 * kDeviceBytes);
  a.AllocateAll(6, kBlock);
  for (size_t i = 0; i < 6; ++i) a.Write(i, static_cast<int>(i) + 1);
  uint64_t moved_before = 0;
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    if (round == 2) moved_before = a.arena().moved().in;
    for (size_t i = 0; i < 6; ++i) a.ExpectHas(i, static_cast<int>(i) + 1);
  }
  // The best that is possible: of six in a circle four are there, and two of five accesses miss.
  const uint64_t moved = (a.arena().moved().in - moved_before) / (kRounds - 2) / kMebibyte;
  EXPECT_LE(moved, 6 * 16 * 2 / 5 + 16);
  EXPECT_LE(a.arena().on_device(), kDeviceBytes);
}

// Whatever the order of its uses, it goes on.
TEST_F(ResidencyTest, ProgramsThatDoNotRepeatThemselvesGoOn) {
  Program a(*this, 1);
  pool_->ledger().SetTenantQuota(a.tenant(), 2 * kDeviceBytes);
  a.AllocateAll(6, kBlock);
  for (size_t i = 0; i < 6; ++i) a.Write(i, static_cast<int>(i) + 1);
  uint32_t random = 1;
  for (int round = 0; round < 300; ++round) {
    random = random * 1664525 + 1013904223;
    const size_t i = (random >> 16) % 6;
    const int uses = 1 + static_cast<int>((random >> 24) % 20);
    for (int use = 0; use < uses; ++use) a.Await(i, /*writes=*/false);
    if (round % 10 == 0) a.ExpectHas(i, static_cast<int>(i) + 1);
  }
}

// One that waits for its own chunks all the time does not hold up another.
TEST_F(ResidencyTest, TenantBesideALargerOneGetsItsTurns) {
  Program large(*this, 1), small(*this, 2);
  pool_->ledger().SetTenantQuota(large.tenant(), 2 * kDeviceBytes);
  large.AllocateAll(6, kBlock);
  small.AllocateAll(2, kBlock);
  large.at_work_ = small.at_work_ = true;
  uint64_t ran_large = 0, ran_small = 0;
  for (int i = 0; i < 4000; ++i) {
    for (auto [program, blocks, ran] :
         {std::tuple(&large, 6, &ran_large), std::tuple(&small, 2, &ran_small)}) {
      const auto held = program->Hold(*ran / 20 % static_cast<uint64_t>(blocks), /*writes=*/false);
      ASSERT_TRUE(held.ok()) << held.status();
      if (*held) ++*ran;
    }
    Pass();
  }
  EXPECT_GT(ran_large, 400u);
  EXPECT_GT(ran_small, 400u);
}

TEST_F(ResidencyTest, WhatNeverFitsTogetherIsRefused) {
  Program a(*this, 1), b(*this, 2);
  pool_->ledger().SetTenantQuota(a.tenant(), 2 * kDeviceBytes);
  a.AllocateAll(5, kBlock);
  a.at_work_ = true;
  std::vector<Residency::Operand> all;
  for (size_t i = 0; i < 5; ++i) all.push_back({a.block(i).address, false});
  ASSERT_TRUE(a.arena().is_watched());
  const auto held = pool_->residency().Hold(a.arena(), a, {0, 1}, all);
  ASSERT_TRUE(absl::IsResourceExhausted(held.status()));
  EXPECT_NE(held.status().message().find("80.00 MiB"), std::string::npos) << held.status();
  a.ExpectHas(0, 0);  // and the next command goes on
}

TEST_F(ResidencyTest, OutOfMemoryWhereItIsAllocatedWhenTheHostIsFullToo) {
  Make(128 * kMebibyte);
  Program a(*this, 1), b(*this, 2), c(*this, 3);
  a.AllocateAll(3, kBlock);
  b.AllocateAll(2, kBlock);
  absl::Status last;
  int more = 0;
  while (more < 20 && (last = c.Allocate(kBlock)).ok()) ++more;
  EXPECT_TRUE(absl::IsResourceExhausted(last)) << last;
  EXPECT_GT(more, 0);
  // All that was given can be used.
  for (Program* const each : {&a, &b}) {
    each->Write(0, 9);
    each->Rest();
    PassFor(200);
  }
  for (int i = 0; i < more; ++i) c.Write(static_cast<size_t>(i), i);
  for (int i = 0; i < more; ++i) c.ExpectHas(static_cast<size_t>(i), i);
}

TEST_F(ResidencyTest, WorkInFlightKeepsItsMemory) {
  Program a(*this, 1), b(*this, 2);
  a.AllocateAll(3, kBlock);
  a.sequence_ = 5;
  a.unfinished_ = 3;  // on the device since before anybody watched
  b.AllocateAll(2, kBlock);
  b.at_work_ = true;
  for (int i = 0; i < 3000; ++i) {
    ASSERT_TRUE(b.Hold(1, true).ok());
    Pass();
  }
  EXPECT_EQ(a.arena().on_device(), a.arena().chunk_bytes());
  a.unfinished_ = 0;
  b.Write(1, 3);
  EXPECT_LT(a.arena().on_device(), a.arena().chunk_bytes());
}

TEST_F(ResidencyTest, TenantThatEndsWhileItsMemoryMovesLeavesNothing) {
  Program b(*this, 2);
  for (int round = 0; round < 4; ++round) {
    auto a = std::make_unique<Program>(*this, 1);
    a->AllocateAll(3, kBlock);
    a->Write(0, 1);
    a->Rest();
    PassFor(200);
    if (round == 0) b.AllocateAll(3, kBlock);
    b.at_work_ = true;
    for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(b.Hold(i, true).ok());
    pool_->residency().Poll(now_ns_ += kMillisecond);  // moves have been started
    a = nullptr;
    for (size_t i = 0; i < 3; ++i) b.Write(i, 2);
    b.Rest();
    PassFor(200);
  }
  PassFor(11'000);
  EXPECT_EQ(pool_->residency().store().used_bytes(), 0u);
  EXPECT_FALSE(b.arena().is_watched()) << "nothing has moved for long";
}

TEST_F(ResidencyTest, HostMemoryGoesBackWhenAllTenantsHaveGone) {
  const Residency& residency = pool_->residency();
  {
    Program a(*this, 1), b(*this, 2);
    a.AllocateAll(3, kBlock);
    a.Write(0, 1);
    a.Rest();
    PassFor(200);
    b.AllocateAll(3, kBlock);
    b.at_work_ = true;
    for (size_t i = 0; i < 3; ++i) b.Write(i, 2);
    b.Rest();
    PassFor(200);
  }
  PassFor(1);
  EXPECT_NE(residency.store().taken_bytes(), 0u);
  const uint64_t due_ns = residency.due_ns();
  EXPECT_GT(due_ns, now_ns_) << "others may come";
  EXPECT_LE(due_ns, now_ns_ + 10'000 * kMillisecond);
  now_ns_ = due_ns;  // nobody has looked meanwhile
  Pass();
  EXPECT_EQ(residency.store().taken_bytes(), 0u);
  EXPECT_EQ(residency.due_ns(), UINT64_MAX);
}

TEST_F(ResidencyTest, MovesThatFailAreTriedAgainAndLoseNothing) {
  Program a(*this, 1), b(*this, 2);
  a.AllocateAll(3, kBlock);
  for (size_t i = 0; i < 3; ++i) a.Write(i, 4);
  a.Rest();
  b.AllocateAll(3, kBlock);
  b.at_work_ = true;
  device_.FailMoves(absl::InternalError("broken"));
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(b.Hold(2, true).ok());
    Pass();
  }
  device_.FailMoves(absl::OkStatus());
  for (size_t i = 0; i < 3; ++i) b.Write(i, 5);
  b.Rest();
  PassFor(200);
  for (size_t i = 0; i < 3; ++i) a.ExpectHas(i, 4);
}

// ---- files

// Programs of four blocks each, so that each alone fills the device.
class FilesTest : public ResidencyTest {
 protected:
  static constexpr size_t kBlocks = 4;

  void SetUp() override { Make(64 * kMebibyte, 512 * kMebibyte); }
  void TearDown() override {
    programs_.clear();
    PassFor(20);
    EXPECT_EQ(InFiles(), 0u);
    EXPECT_EQ(pool_->residency().store().used_bytes(), 0u);
  }
  // The contents of a block, other ones in each round.
  static int ValueOf(size_t program, size_t block, int round) {
    return static_cast<int>(program * 16 + block + 1 + static_cast<size_t>(round) * 101) % 251;
  }
  void Add(size_t count) {
    for (size_t p = 0; p < count; ++p) {
      programs_.push_back(std::make_unique<Program>(*this, static_cast<uint32_t>(programs_.size() + 1)));
      programs_.back()->AllocateAll(kBlocks, kBlock);
      WriteAll(programs_.size() - 1, 0);
    }
  }
  void WriteAll(size_t p, int round) {
    for (size_t i = 0; i < kBlocks; ++i) programs_[p]->Write(i, ValueOf(p, i, round));
    programs_[p]->Rest();
    PassFor(200);
  }
  void ExpectAll(size_t p, int round) {
    for (size_t i = 0; i < kBlocks; ++i) programs_[p]->ExpectHas(i, ValueOf(p, i, round));
    programs_[p]->Rest();
    PassFor(200);
  }

  std::vector<std::unique_ptr<Program>> programs_;
};

TEST_F(FilesTest, HoldWhatTheHostHasNoRoomFor) {
  Add(6);
  EXPECT_GE(InFiles(), (24 - 4 - 4) * 16 * kMebibyte);
  EXPECT_EQ(pool_->Usage().file_bytes, InFiles());
  for (size_t p = 0; p < 6; ++p) ExpectAll(p, 0);
  for (size_t p = 0; p < 6; ++p) WriteAll(p, 1);
  for (size_t p = 6; p-- > 0;) ExpectAll(p, 1);
  EXPECT_EQ(troubles_, 0);
}

TEST_F(FilesTest, AreNotUsedWhileTheHostHasRoom) {
  Make(256 * kMebibyte, 512 * kMebibyte);
  Add(3);
  for (size_t p = 0; p < 3; ++p) ExpectAll(p, 0);
  EXPECT_EQ(file_->writes, 0);
}

TEST_F(FilesTest, WhatIsAwayForLongestGoesFirst) {
  Make(128 * kMebibyte, 512 * kMebibyte);
  Add(4);
  const auto in_files = [&](size_t p) {
    return std::ranges::count_if(programs_[p]->arena().chunks(),
                                 [](const auto& each) { return !each.second->file.empty(); });
  };
  EXPECT_GT(in_files(0), 0);
  EXPECT_EQ(in_files(2), 0) << "it left last";
}

TEST_F(FilesTest, TenantsAtWorkTakeTurnsByWayOfFiles) {
  Add(4);
  for (int round = 1; round < 3; ++round) {
    for (auto& program : programs_) program->at_work_ = true;
    int ran[4] = {};
    while (std::ranges::any_of(ran, [](int count) { return count < 3 * static_cast<int>(kBlocks); })) {
      for (size_t p = 0; p < 4; ++p) {
        const size_t i = static_cast<size_t>(ran[p]) % kBlocks;
        const auto held = programs_[p]->Hold(i, /*writes=*/true);
        ASSERT_TRUE(held.ok()) << held.status();
        if (!*held) continue;
        auto* const bytes = reinterpret_cast<unsigned char*>(programs_[p]->block(i).address);
        const bool first = ran[p] < static_cast<int>(kBlocks);
        ASSERT_EQ(bytes[4096], ValueOf(p, i, first ? round - 1 : round)) << p << " " << i;
        std::memset(bytes, ValueOf(p, i, round), kBlock * kMebibyte);
        ++ran[p];
      }
      Pass();
    }
    for (auto& program : programs_) program->Rest();
    for (size_t p = 0; p < 4; ++p) ExpectAll(p, round);
  }
  EXPECT_GT(InFiles(), 0u);
}

TEST_F(FilesTest, TenantLargerThanDeviceAndHostExchangesItsChunks) {
  programs_.push_back(std::make_unique<Program>(*this, 1));
  Program& large = *programs_[0];
  pool_->ledger().SetTenantQuota(large.tenant(), 8 * kDeviceBytes);
  large.AllocateAll(14, kBlock);
  for (size_t i = 0; i < 14; ++i) large.Write(i, static_cast<int>(i) + 1);
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < 14; ++i) large.ExpectHas(i, static_cast<int>(i) + 1);
  }
  EXPECT_GT(InFiles(), 0u);
}

TEST_F(FilesTest, OutOfMemoryWhereItIsAllocatedWhenAllAreFull) {
  Make(64 * kMebibyte, 256 * kMebibyte);
  // Of 24 chunks that there are, five remain free, so that chunks can change places.
  Add(4);
  programs_.push_back(std::make_unique<Program>(*this, 5));
  programs_[4]->AllocateAll(3, kBlock);
  const absl::Status refused = programs_[4]->Allocate(kBlock);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  for (size_t i = 0; i < 3; ++i) programs_[4]->Write(i, 7);
  programs_[4]->Rest();
  PassFor(200);
  for (size_t p = 0; p < 4; ++p) WriteAll(p, 1);
  for (size_t p = 0; p < 4; ++p) ExpectAll(p, 1);
  for (size_t i = 0; i < 3; ++i) programs_[4]->ExpectHas(i, 7);
}

TEST_F(FilesTest, ChunksOfSeveralSizesChangePlaces) {
  Make(192 * kMebibyte, 1024 * kMebibyte);
  struct Held {
    std::unique_ptr<Program> program;
    std::vector<int> values;
  };
  std::vector<Held> all;
  uint32_t random = 7;
  const auto next = [&](uint32_t most) {
    random = random * 1664525 + 1013904223;
    return (random >> 16) % most;
  };
  for (uint32_t p = 0; p < 8; ++p) {
    Held held{std::make_unique<Program>(*this, p + 1), {}};
    uint64_t total = 0;
    while (total < 56) {
      const uint64_t mebibytes = 3 + next(30);
      if (total + mebibytes > 60 || !held.program->Allocate(mebibytes).ok()) break;
      total += mebibytes;
      held.values.push_back(static_cast<int>(next(250)) + 1);
      held.program->Write(held.values.size() - 1, held.values.back());
    }
    held.program->Rest();
    PassFor(200);
    all.push_back(std::move(held));
  }
  EXPECT_GT(InFiles(), 0u);
  for (int round = 0; round < 30; ++round) {
    Held& held = all[next(8)];
    if (held.values.empty()) continue;
    const size_t i = next(static_cast<uint32_t>(held.values.size()));
    held.program->ExpectHas(i, held.values[i]);
    held.values[i] = static_cast<int>(next(250)) + 1;
    held.program->Write(i, held.values[i]);
    if (next(3) == 0) held.program->Rest();
    if (next(3) == 0) PassFor(150);
  }
  for (Held& held : all) {
    for (size_t i = 0; i < held.values.size(); ++i) held.program->ExpectHas(i, held.values[i]);
    held.program->Rest();
    PassFor(200);
  }
}

TEST_F(FilesTest, FullDiskLosesNothingAndIsTriedAgain) {
  file_->write_error = ENOSPC;
  Add(2);  // in the host
  programs_.push_back(std::make_unique<Program>(*this, 3));
  Program& third = *programs_.back();
  third.AllocateAll(kBlocks, kBlock);
  third.at_work_ = true;
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(third.Hold(static_cast<size_t>(i) % kBlocks, true).ok());
    Pass();
  }
  EXPECT_GT(file_->writes, 0);
  EXPECT_GT(troubles_, 0);
  EXPECT_EQ(InFiles(), 0u) << "what was not written is where it was";
  const int tried = file_->writes;
  EXPECT_LE(tried, 8) << "the files count as full for a while";
  Program other(*this, 9);
  EXPECT_TRUE(absl::IsResourceExhausted(other.Allocate(kBlock))) << "full, for those who want more";
  file_->write_error = 0;
  WriteAll(2, 0);
  for (size_t p = 0; p < 3; ++p) ExpectAll(p, 0);
  EXPECT_GT(file_->writes, tried);
  EXPECT_TRUE(other.Allocate(kBlock).ok());
}

TEST_F(FilesTest, ShortWritesAndReadsGoOn) {
  file_->is_short = true;
  Add(5);
  EXPECT_GT(InFiles(), 0u);
  for (size_t p = 0; p < 5; ++p) ExpectAll(p, 0);
  EXPECT_EQ(troubles_, 0);
}

TEST_F(FilesTest, FailedReadsAreTriedAgain) {
  Add(5);
  file_->read_error = EIO;
  programs_[0]->at_work_ = true;
  const int before = file_->reads;
  for (int i = 0; i < 1500; ++i) {  // 150 ms: a first try and a second
    ASSERT_TRUE(programs_[0]->Hold(0, false).ok());
    Pass();
  }
  EXPECT_GT(file_->reads, before);
  EXPECT_GT(troubles_, 0);
  file_->read_error = 0;
  for (size_t p = 0; p < 5; ++p) ExpectAll(p, 0);
}

// Its owner gets an error each time, and never other contents. Others go on.
TEST_F(FilesTest, LostMemoryIsAnErrorAndNothingElse) {
  Add(5);
  file_->read_error = EIO;
  Program& victim = *programs_[0];
  victim.at_work_ = true;
  absl::StatusOr<bool> held = false;
  for (int i = 0; i < 50'000 && held.ok(); ++i) {
    held = victim.Hold(0, /*writes=*/false);
    ASSERT_TRUE(!held.ok() || !*held) << "it was used, but cannot be there";
    Pass();
  }
  EXPECT_TRUE(absl::IsDataLoss(held.status())) << held.status();
  PassFor(1000);
  for (const bool writes : {true, false}) EXPECT_TRUE(absl::IsDataLoss(victim.Hold(0, writes).status()));
  file_->read_error = 0;
  victim.Rest();
  PassFor(200);
  EXPECT_TRUE(absl::IsDataLoss(victim.Hold(0, false).status())) << "it stays lost";
  for (size_t p = 1; p < 5; ++p) ExpectAll(p, 0);
  programs_[0] = nullptr;
  Program next(*this, 1);
  ASSERT_TRUE(next.Allocate(kBlock).ok());
  next.ExpectHas(0, 0);
}

// At each point of a chunk's way out and back.
TEST_F(FilesTest, TenantsThatEndMeanwhileLeaveNothing) {
  for (int passes = 0; passes < 60; passes += 6) {
    Add(4);
    for (auto& program : programs_) program->at_work_ = true;
    for (int i = 0; i < passes; ++i) {
      for (auto& program : programs_) {
        for (size_t block = 0; block < kBlocks; ++block) ASSERT_TRUE(program->Hold(block, true).ok());
      }
      Pass();
    }
    programs_.clear();
    PassFor(20);
    ASSERT_EQ(InFiles(), 0u) << passes;
    ASSERT_EQ(pool_->residency().store().used_bytes(), 0u) << passes;
  }
}

TEST_F(FilesTest, MemoryComesBackWhileItIsWritten) {
  Make(64 * kMebibyte, 512 * kMebibyte);
  Add(3);
  for (int round = 0; round < 20; ++round) {
    // The one whose memory goes to the files now is wanted at once.
    Program& next = *programs_[static_cast<size_t>(round) % 3];
    Program& after = *programs_[static_cast<size_t>(round + 1) % 3];
    next.at_work_ = after.at_work_ = true;
    for (int i = 0; i < 3 + round; ++i) {
      ASSERT_TRUE(next.Hold(0, true).ok());
      ASSERT_TRUE(after.Hold(static_cast<size_t>(i) % kBlocks, false).ok());
      Pass();
    }
    after.ExpectHas(0, ValueOf(static_cast<size_t>(round + 1) % 3, 0, 0));
    next.Rest();
    after.Rest();
  }
  for (size_t p = 0; p < 3; ++p) ExpectAll(p, 0);
}

TEST(MovedOutFile, HasNoNameAndAllOfItsBytes) {
  std::string folder = "/tmp/xpud-files-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto file = MovedOutFile::Create(folder, 8 * kMebibyte);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  alignas(4096) static std::byte bytes[8192], read[8192];
  std::memset(bytes, 5, sizeof(bytes));
  ASSERT_TRUE((*file)->Write(bytes, 8 * kMebibyte - sizeof(bytes)).ok());
  ASSERT_TRUE((*file)->Read(read, 8 * kMebibyte - sizeof(bytes)).ok());
  EXPECT_EQ(std::memcmp(bytes, read, sizeof(bytes)), 0);
  EXPECT_TRUE(absl::IsDataLoss((*file)->Read(read, 8 * kMebibyte))) << "it ends there";
  std::filesystem::remove(folder);
}

TEST(MovedOutFile, FoldersThatCannotBeUsedAreRefused) {
  std::string folder = "/tmp/xpud-files-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto refusal = [&](const std::string& of, uint64_t bytes) {
    const auto file = MovedOutFile::Create(of, bytes);
    return file.ok() ? "" : std::string(file.status().message());
  };
  EXPECT_NE(refusal(folder + "/none", kMebibyte).find("/none cannot be used; create it"), std::string::npos);
  const UniqueFd file(open((folder + "/file").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  EXPECT_NE(refusal(folder + "/file", kMebibyte).find("is not a folder"), std::string::npos);
  const std::string full = refusal(folder, uint64_t{8} << 40);
  EXPECT_NE(full.find(" has no room for 8.00 TiB"), std::string::npos) << full;
  ASSERT_EQ(chmod(folder.c_str(), 0777), 0);
  EXPECT_NE(refusal(folder, kMebibyte), "");
  std::filesystem::remove_all(folder);
}

TEST_F(ResidencyTest, HigherClassKeepsItsMemoryLonger) {
  Program low(*this, 1), high(*this, 2);
  pool_->residency().SetClasses([&](const Tenant& tenant) {
    return tenant == high.tenant() ? PriorityClass::kInteractive : PriorityClass::kBatch;
  });
  low.AllocateAll(3, kBlock);
  high.AllocateAll(3, kBlock);
  uint64_t ran_low = 0, ran_high = 0;
  low.at_work_ = high.at_work_ = true;
  for (int i = 0; i < 20'000; ++i) {
    for (auto [program, ran] : {std::pair(&low, &ran_low), std::pair(&high, &ran_high)}) {
      const auto held = program->Hold(*ran % 3, /*writes=*/true);
      ASSERT_TRUE(held.ok()) << held.status();
      if (*held) ++*ran;
    }
    Pass();
  }
  EXPECT_GT(ran_high, 4 * ran_low);
  EXPECT_GT(ran_low, 0u) << "it gets its turn, too";
}

}  // namespace
}  // namespace xpud::memory
