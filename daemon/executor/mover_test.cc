// Chunks whose memory leaves the device and returns, also while executors end.
#include "daemon/executor/api/mover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/executor/api/address_space.h"
#include "daemon/executor/level_zero/driver.h"
#include "daemon/executor/process/executor_memory.h"
#include "daemon/executor/testing/device_fixture.h"
#include "proto/base/mapping.h"
#include "proto/base/status_macros.h"

namespace xpud::executor::testing {
namespace {

using absl::StatusCode;
using ::testing::Each;

constexpr uint64_t kBytes = AddressSpace::kChunkUnit;
constexpr uint64_t kSmall = (uint64_t{4} << 20) + 12;

// Memory of the daemon, as its store of moved memory has it.
struct Store {
  UniqueFd fd;
  Mapping mapping;
  std::unique_ptr<HostMemory> memory;

  std::byte* data() const { return mapping.data(); }
  HostPart Part(uint64_t offset, uint64_t bytes) const { return {memory.get(), offset, bytes}; }
  void Fill(uint64_t seed) const {
    std::mt19937_64 random(seed);
    auto* const words = reinterpret_cast<uint64_t*>(data());
    for (size_t i = 0; i < mapping.size() / sizeof(uint64_t); ++i) words[i] = random();
  }
  void Clear() const { std::memset(data(), 0, mapping.size()); }
};

bool IsSame(const Store& a, const Store& b, uint64_t bytes) {
  return std::memcmp(a.data(), b.data(), bytes) == 0;
}

// A move that was started. Lives until it is done.
struct Started {
  std::shared_ptr<Move> move;
  std::optional<absl::Status> done;
  Mover::Done Note() {
    return [this](absl::Status status) {
      EXPECT_FALSE(done.has_value());
      done = std::move(status);
    };
  }
};

#if defined(__has_feature) && __has_feature(thread_sanitizer)
constexpr bool kHasSpawner = false;
#else
constexpr bool kHasSpawner = true;
#endif

class MoverTest : public DeviceTest {
 protected:
  void SetUp() override {
    if (!InProcess() && !kHasSpawner)
      GTEST_SKIP() << "TSan ends the spawner, whose children share its memory";
    DeviceTest::SetUp();
  }
  Mover& mover() { return *device_->mover(); }

  Store MakeStore(uint64_t bytes) {
    Store store;
    store.fd = *CreateSealedMemfd("xpud-test", bytes);
    store.mapping = *Mapping::Map(store.fd, bytes, Access::kReadWrite);
    device_->StartImport({{store.data(), bytes}, store.fd.get()}, 0,
                         [&](absl::StatusOr<std::unique_ptr<HostMemory>> memory) {
                           ASSERT_TRUE(memory.ok()) << memory.status();
                           store.memory = *std::move(memory);
                         });
    PollUntil([&] { return store.memory != nullptr; });
    return store;
  }
  std::unique_ptr<Started> StartLeave(Chunk& chunk, HostParts to) {
    auto started = std::make_unique<Started>();
    started->move = mover().StartLeave(chunk, std::move(to), started->Note());
    return started;
  }
  std::unique_ptr<Started> StartReturn(Chunk& chunk, HostParts from) {
    auto started = std::make_unique<Started>();
    started->move = mover().StartReturn(chunk, std::move(from), started->Note());
    return started;
  }
  absl::Status Await(const Started& started) {
    PollUntil([&] { return started.done.has_value(); });
    return started.done.value_or(absl::UnknownError("it does not end"));
  }
  absl::Status Leave(Chunk& chunk, HostParts to) { return Await(*StartLeave(chunk, std::move(to))); }
  absl::Status Return(Chunk& chunk, HostParts from) { return Await(*StartReturn(chunk, std::move(from))); }
  // A chunk with the store's contents.
  std::unique_ptr<Chunk> MakeChunk(const Store& store, uint64_t bytes) {
    auto chunk = *device_->ReserveChunk(bytes);
    const absl::Status returned = Return(*chunk, {store.Part(0, bytes)});
    EXPECT_TRUE(returned.ok()) << returned;
    return chunk;
  }

  std::vector<std::string> PagesOf(const Chunk& chunk) const {
    std::vector<std::string> pages;
    for (const pid_t pid : Drivers()) pages.push_back(PagesAt(pid, chunk));
    return pages;
  }
  std::string Zero() const { return std::string(kPart, '\0'); }
  std::string All(char value) const { return std::string(kPart, value); }
  std::string FirstOf(const Store& store) const {
    return std::string(reinterpret_cast<const char*>(store.data()), kPart);
  }
};

class ExecutorMoverTest : public MoverTest {
 protected:
  ExecutorStatus Status(ExecutorRole role = ExecutorRole::kAll) const { return device_->executor(role); }
  void Kill() {
    killed_ = Status().pid;
    ASSERT_EQ(kill(killed_, SIGKILL), 0);
  }
  void AwaitNext() {
    PollUntil([&] { return Status().pid != 0 && Status().pid != killed_; });
  }

 private:
  pid_t killed_ = 0;
};

// ---- where the memory is

TEST_P(MoverTest, MemoryThatLeavesKeepsItsAddressesAndReturnsZeroed) {
  auto chunk = *device_->AllocateChunk(kBytes);
  auto other = *device_->AllocateChunk(kBytes);
  std::byte* const address = chunk->address();
  EXPECT_THAT(PagesOf(*chunk), Each("rw-s"));
  Write(*chunk, 'a');
  Write(*other, 'b');
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Leave(*chunk, {}).ok());
    EXPECT_THAT(PagesOf(*chunk), Each("---p")) << "reserved";
    auto meanwhile = *device_->AllocateChunk(kBytes);
    EXPECT_NE(meanwhile->address(), address);
    const absl::Status returned = Return(*chunk, {});
    ASSERT_TRUE(returned.ok()) << returned;
    EXPECT_EQ(chunk->address(), address);
    EXPECT_EQ(ReadByAll(*chunk), Zero());
    Write(*chunk, 'c');
    EXPECT_EQ(ReadByAll(*chunk), All('c'));
  }
  EXPECT_EQ(ReadByAll(*other), All('b'));
  ASSERT_TRUE(Leave(*chunk, {}).ok());
  chunk.reset();  // while it is away
  EXPECT_EQ(device_->AllocateChunk(kBytes).value()->address(), address) << "its addresses are free";
}

TEST_P(MoverTest, ReservedChunkIsAwayAndThenLikeAnyOther) {
  const Store store = MakeStore(kBytes);
  store.Fill(1);
  auto chunk = *device_->ReserveChunk(kBytes);
  EXPECT_THAT(PagesOf(*chunk), Each("---p"));
  auto other = *device_->AllocateChunk(kBytes);
  EXPECT_NE(other->address(), chunk->address());
  ASSERT_TRUE(Return(*chunk, {store.Part(0, kPart)}).ok());
  EXPECT_THAT(PagesOf(*chunk), Each("rw-s"));
  EXPECT_EQ(ReadByAll(*chunk), FirstOf(store));
  std::byte* const address = chunk->address();
  chunk.reset();
  EXPECT_EQ(device_->ReserveChunk(kBytes).value()->address(), address) << "its addresses are free";
}

// Of less than a page, of pages and a part, of more than one unit of addresses.
TEST_P(MoverTest, SizesNeedNotBeWholePagesOrUnits) {
  const Store store = MakeStore(2 * kBytes + 1);
  store.Fill(2);
  const Store copy = MakeStore(2 * kBytes + 1);
  for (const uint64_t bytes : {uint64_t{1}, kPart + 1, (uint64_t{2} << 20) + 1, kBytes - 1, 2 * kBytes + 1}) {
    auto chunk = MakeChunk(store, bytes);
    auto next = *device_->AllocateChunk(1);
    EXPECT_EQ(chunk->bytes(), bytes);
    EXPECT_GE(next->address(), chunk->address() + bytes);
    copy.Clear();
    ASSERT_TRUE(Leave(*chunk, {copy.Part(0, bytes)}).ok());
    EXPECT_TRUE(IsSame(store, copy, bytes));
    EXPECT_EQ(copy.data()[bytes], std::byte{}) << "nothing is written beyond the part";
  }
}

TEST_P(MoverTest, MemoryThatLeftIsThereForOthers) {
  const uint64_t most = device_->properties().total_memory / 4 * 3 / kBytes * kBytes;
  auto chunk = *device_->AllocateChunk(most);
  EXPECT_EQ(device_->AllocateChunk(most).status().code(), StatusCode::kResourceExhausted);
  ASSERT_TRUE(Leave(*chunk, {}).ok());
  auto other = device_->AllocateChunk(most);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(Return(*chunk, {}).code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(PagesOf(*chunk), Each("---p"));
  other->reset();
  const absl::Status returned = Return(*chunk, {});
  ASSERT_TRUE(returned.ok()) << returned << "; a refusal leaves it away";
  EXPECT_EQ(ReadByAll(*chunk), Zero());
}

// ---- contents

TEST_P(MoverTest, ContentsSurviveInParts) {
  const Store store = MakeStore(2 * kBytes);
  const Store copy = MakeStore(2 * kBytes);
  store.Fill(3);
  auto chunk = MakeChunk(store, 2 * kBytes);
  EXPECT_EQ(ReadByAll(*chunk), FirstOf(store));
  // The second half lies before the first one.
  const uint64_t first = kBytes + 4099, rest = 2 * kBytes - first;
  const HostParts parts = {copy.Part(rest, first), copy.Part(0, rest)};
  ASSERT_TRUE(Leave(*chunk, parts).ok());
  EXPECT_EQ(std::memcmp(copy.data() + rest, store.data(), first), 0);
  EXPECT_EQ(std::memcmp(copy.data(), store.data() + first, rest), 0);
  ASSERT_TRUE(Return(*chunk, parts).ok());
  copy.Clear();
  ASSERT_TRUE(Leave(*chunk, {copy.Part(0, 2 * kBytes)}).ok());
  EXPECT_TRUE(IsSame(store, copy, 2 * kBytes));
  // Neighbours, which are copied together, before and after one that is not.
  const HostParts neighbours = {copy.Part(rest, 4099), copy.Part(rest + 4099, first - 4099),
                                copy.Part(0, 4096), copy.Part(4096, rest - 4096)};
  ASSERT_TRUE(Return(*chunk, {store.Part(0, first), store.Part(first, rest)}).ok());
  copy.Clear();
  ASSERT_TRUE(Leave(*chunk, neighbours).ok());
  EXPECT_EQ(std::memcmp(copy.data() + rest, store.data(), first), 0);
  EXPECT_EQ(std::memcmp(copy.data(), store.data() + first, rest), 0);
  // What is beyond the parts is zero.
  ASSERT_TRUE(Return(*chunk, {store.Part(0, kPart)}).ok());
  ASSERT_TRUE(Leave(*chunk, {copy.Part(0, 2 * kBytes)}).ok());
  EXPECT_TRUE(IsSame(store, copy, kPart));
  EXPECT_TRUE(std::all_of(copy.data() + kPart, copy.data() + 2 * kBytes,
                          [](std::byte byte) { return byte == std::byte{}; }));
}

TEST_P(MoverTest, SeveralChunksMoveBothWaysAtOnce) {
  constexpr size_t kChunks = 8;
  std::vector<Store> stores;
  std::vector<std::unique_ptr<Chunk>> chunks;
  const Store copy = MakeStore(kSmall);
  for (size_t i = 0; i < kChunks; ++i) {
    stores.push_back(MakeStore(kSmall));
    stores.back().Fill(10 + i);
    chunks.push_back(i % 2 == 0 ? MakeChunk(stores[i], kSmall) : *device_->ReserveChunk(kSmall));
  }
  for (int round = 0; round < 10; ++round) {
    std::vector<std::unique_ptr<Started>> started;
    for (size_t i = 0; i < kChunks; ++i) {
      const bool leaves = (i + static_cast<size_t>(round)) % 2 == 0;
      started.push_back(leaves ? StartLeave(*chunks[i], {stores[i].Part(0, kSmall)})
                               : StartReturn(*chunks[i], {stores[i].Part(0, kSmall)}));
    }
    for (const auto& each : started) {
      const absl::Status moved = Await(*each);
      ASSERT_TRUE(moved.ok()) << moved;
    }
    for (size_t i = 0; i < kChunks; ++i) {  // those that have left again lie in their stores
      copy.Fill(10 + i);
      EXPECT_TRUE(IsSame(stores[i], copy, kSmall)) << round << " " << i;
    }
  }
}

// ---- moves that are forgotten

TEST_P(MoverTest, ForgottenLeaveKeepsTheChunkAndItsContents) {
  const Store store = MakeStore(kSmall);
  const Store copy = MakeStore(kSmall);
  store.Fill(4);
  auto chunk = MakeChunk(store, kSmall);
  std::minstd_rand random(1);
  int kept = 0;
  for (int i = 0; i < 200; ++i) {
    const auto leave = StartLeave(*chunk, {copy.Part(0, kSmall)});
    const auto wait = std::chrono::microseconds(random() % (i % 4 == 0 ? 1 : 4'000));
    for (const auto until = std::chrono::steady_clock::now() + wait;
         std::chrono::steady_clock::now() < until && !leave->done.has_value();)
      device_->Poll();
    const bool stays = leave->move->Forget();
    if (stays && !leave->done.has_value()) EXPECT_EQ(ReadByAll(*chunk), FirstOf(store)) << "usable at once";
    EXPECT_EQ(leave->move->Forget(), stays);
    const absl::Status moved = Await(*leave);
    kept += stays;
    if (stays) {
      EXPECT_EQ(moved.code(), StatusCode::kCancelled);
    } else {
      EXPECT_TRUE(moved.ok()) << moved;
      ASSERT_TRUE(Return(*chunk, {copy.Part(0, kSmall)}).ok());
    }
    EXPECT_FALSE(!stays && leave->move->Forget()) << "it is done";
  }
  EXPECT_GT(kept, 0);
  EXPECT_LT(kept, 200);
  copy.Clear();
  ASSERT_TRUE(Leave(*chunk, {copy.Part(0, kSmall)}).ok());
  EXPECT_TRUE(IsSame(store, copy, kSmall));
}

TEST_P(MoverTest, ReturnIsNotForgotten) {
  const Store store = MakeStore(kSmall);
  store.Fill(5);
  auto chunk = *device_->ReserveChunk(kSmall);
  const auto returning = StartReturn(*chunk, {store.Part(0, kSmall)});
  EXPECT_FALSE(returning->move->Forget());
  EXPECT_TRUE(Await(*returning).ok());
  EXPECT_FALSE(returning->move->Forget());
  EXPECT_EQ(ReadByAll(*chunk), FirstOf(store));
}

TEST_P(MoverTest, MovesEndWithTheMover) {
  constexpr uint64_t kMoves = 16;
  std::vector<std::unique_ptr<Started>> started;
  {
    const Store store = MakeStore(kMoves * kSmall);
    std::vector<std::unique_ptr<Chunk>> chunks;
    for (uint64_t i = 0; i < kMoves; ++i) {
      const HostPart part = store.Part(i * kSmall, kSmall);
      if (i % 2 == 0) {
        chunks.push_back(*device_->AllocateChunk(kSmall));
        started.push_back(StartLeave(*chunks.back(), {part}));
      } else {
        chunks.push_back(*device_->ReserveChunk(kSmall));
        started.push_back(StartReturn(*chunks.back(), {part}));
      }
    }
    mover().End();
    device_->Poll();
    for (const auto& each : started) EXPECT_FALSE(each->done.has_value());
  }
  for (const auto& each : started) each->move->Forget();  // has nothing to do any more
}

// ---- executors that end

// Chunks that are there keep their contents; those that are away keep their addresses.
TEST_P(ExecutorMoverTest, NextExecutorHasWhatIsThereAndTheAddressesOfWhatIsAway) {
  auto there = *device_->AllocateChunk(kBytes);
  auto away = *device_->AllocateChunk(kBytes);
  auto back = *device_->AllocateChunk(kBytes);
  Write(*there, 'a');
  Write(*away, 'b');
  ASSERT_TRUE(Leave(*away, {}).ok());
  ASSERT_TRUE(Leave(*back, {}).ok());
  ASSERT_TRUE(Return(*back, {}).ok());
  Write(*back, 'c');
  Kill();
  AwaitNext();
  EXPECT_THAT(PagesOf(*there), Each("rw-s"));
  EXPECT_THAT(PagesOf(*away), Each("---p"));
  EXPECT_EQ(ReadByAll(*there), All('a'));
  EXPECT_EQ(ReadByAll(*back), All('c'));
  ASSERT_TRUE(Return(*away, {}).ok());
  EXPECT_EQ(ReadByAll(*away), Zero());
}

// Both wait for the next one, which nobody has to ask for.
TEST_P(ExecutorMoverTest, MovesGoOnWithTheNextExecutor) {
  const Store store = MakeStore(kBytes);
  const Store copy = MakeStore(kBytes);
  store.Fill(6);
  auto leaves = MakeChunk(store, kBytes);
  auto returns = *device_->ReserveChunk(kBytes);
  Kill();
  PollUntil([&] { return Status().lost == 1; });
  EXPECT_EQ(device_->ReserveChunk(kBytes).status().code(), StatusCode::kUnavailable);
  const auto leave = StartLeave(*leaves, {copy.Part(0, kBytes)});
  const auto back = StartReturn(*returns, {store.Part(0, kBytes)});
  EXPECT_TRUE(Await(*leave).ok()) << *leave->done;
  EXPECT_TRUE(Await(*back).ok()) << *back->done;
  EXPECT_EQ(Status().replaced, 1u);
  EXPECT_TRUE(IsSame(store, copy, kBytes));
  EXPECT_THAT(PagesOf(*leaves), Each("---p"));
  EXPECT_EQ(ReadByAll(*returns), FirstOf(store));
}

// The executor ends when it has done its part and the lane has not heard of it.
TEST_P(ExecutorMoverTest, ChangeThatTheLaneHasNotHeardOfReachesTheNextExecutor) {
  const Store store = MakeStore(kSmall);
  const Store copy = MakeStore(kSmall);
  store.Fill(7);
  auto chunk = MakeChunk(store, kSmall);
  const auto leave = StartLeave(*chunk, {copy.Part(0, kSmall)});
  while (PagesAt(Status().pid, *chunk) != "---p") std::this_thread::yield();
  Kill();
  EXPECT_TRUE(Await(*leave).ok()) << *leave->done;
  EXPECT_TRUE(IsSame(store, copy, kSmall));
  AwaitNext();
  EXPECT_THAT(PagesOf(*chunk), Each("---p"));

  const auto back = StartReturn(*chunk, {copy.Part(0, kSmall)});
  while (PagesAt(Status().pid, *chunk) != "rw-s") std::this_thread::yield();
  Kill();
  EXPECT_TRUE(Await(*back).ok()) << *back->done;
  AwaitNext();
  EXPECT_THAT(PagesOf(*chunk), Each("rw-s"));
  EXPECT_EQ(ReadByAll(*chunk), FirstOf(store));
}

// The next executor has been given what was there before, and takes over later.
TEST_P(ExecutorMoverTest, MovesFinishWhileTheNextExecutorTakesOver) {
  const Store store = MakeStore(kSmall);
  const Store copy = MakeStore(kSmall);
  store.Fill(8);
  auto leaves = MakeChunk(store, kSmall);
  auto returns = *device_->ReserveChunk(kSmall);
  auto last = *device_->AllocateChunk(kSmall);
  const std::vector<pid_t> had = Drivers();
  // The threads of the mover have changed all executors, and the lane hears of it when the next executor has
  // got its memory.
  const auto leave = StartLeave(*leaves, {copy.Part(0, kSmall)});
  const auto back = StartReturn(*returns, {store.Part(0, kSmall)});
  for (const pid_t pid : had) {
    while (PagesAt(pid, *leaves) != "---p" || PagesAt(pid, *returns) != "rw-s") std::this_thread::yield();
  }
  Kill();
  // Chunks are given in the order of their addresses.
  const auto is_given = [&] {
    return std::ranges::any_of(OtherProcesses(), [&](pid_t pid) {
      return std::ranges::find(had, pid) == had.end() && PagesAt(pid, *last) == "rw-s";
    });
  };
  PollUntil([&] { return Status().lost == 1; });
  while (!is_given()) std::this_thread::yield();
  EXPECT_TRUE(Await(*leave).ok()) << *leave->done;
  EXPECT_TRUE(Await(*back).ok()) << *back->done;
  AwaitNext();
  EXPECT_THAT(PagesOf(*leaves), Each("---p"));
  EXPECT_THAT(PagesOf(*returns), Each("rw-s"));
  EXPECT_TRUE(IsSame(store, copy, kSmall));
  EXPECT_EQ(ReadByAll(*returns), FirstOf(store));
}

TEST_P(ExecutorMoverTest, MovesSurviveExecutorsThatEndAtAnyTime) {
  constexpr size_t kChunks = 4;
  constexpr int kRounds = 100;
  std::vector<Store> stores;
  std::vector<std::unique_ptr<Chunk>> chunks;
  std::vector<bool> there;
  const Store copy = MakeStore(kSmall);
  for (size_t i = 0; i < kChunks; ++i) {
    stores.push_back(MakeStore(kSmall));
    stores.back().Fill(20 + i);
    there.push_back(i % 2 == 0);
    chunks.push_back(there[i] ? MakeChunk(stores[i], kSmall) : *device_->ReserveChunk(kSmall));
  }
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::minstd_rand random(seed);
  for (int round = 0; round < kRounds; ++round) {
    const bool batch = GetParam() == Driven::kByTwoExecutors && random() % 3 == 0;
    const ExecutorRole role = batch ? ExecutorRole::kBatch : ExecutorRole::kAll;
    PollUntil([&] { return Status(role).pid != 0; });
    const pid_t victim = Status(role).pid;
    std::atomic<bool> killed{false};
    std::thread killer([&, wait = std::chrono::microseconds(random() % 8'000)] {
      std::this_thread::sleep_for(wait);
      kill(victim, SIGKILL);
      killed = true;
    });
    std::vector<std::unique_ptr<Started>> started;
    for (size_t i = 0; i < kChunks; ++i) {
      if (there[i]) stores[i].Clear();
      started.push_back(there[i] ? StartLeave(*chunks[i], {stores[i].Part(0, kSmall)})
                                 : StartReturn(*chunks[i], {stores[i].Part(0, kSmall)}));
      if (there[i] && random() % 8 == 0) started.back()->move->Forget();
    }
    for (size_t i = 0; i < kChunks; ++i) {
      const absl::Status moved = Await(*started[i]);
      if (there[i] && absl::IsCancelled(moved)) continue;
      ASSERT_TRUE(moved.ok()) << moved << " in round " << round;
      there[i] = !there[i];
    }
    killer.join();
    PollUntil([&] { return Status(role).pid != 0 && Status(role).pid != victim; });
    for (size_t i = 0; i < kChunks; ++i) {
      ASSERT_THAT(PagesOf(*chunks[i]), Each(there[i] ? "rw-s" : "---p")) << round;
      copy.Fill(20 + i);
      if (there[i]) {
        ASSERT_EQ(ReadByAll(*chunks[i]), FirstOf(copy)) << round;
      } else {
        ASSERT_TRUE(IsSame(stores[i], copy, kSmall)) << round;
      }
    }
  }
  for (size_t i = 0; i < kChunks; ++i) {
    if (!there[i]) continue;
    ASSERT_TRUE(Leave(*chunks[i], {stores[i].Part(0, kSmall)}).ok());
    copy.Fill(20 + i);
    EXPECT_TRUE(IsSame(stores[i], copy, kSmall));
  }
}

TEST_P(ExecutorMoverTest, MoverEndsThoughItsMovesWaitForAnExecutor) {
  const Store store = MakeStore(kSmall);
  auto leaves = *device_->AllocateChunk(kSmall);
  auto returns = *device_->ReserveChunk(kSmall);
  Kill();
  PollUntil([&] { return Status().lost == 1; });
  const auto leave = StartLeave(*leaves, {store.Part(0, kSmall)});
  const auto back = StartReturn(*returns, {store.Part(0, kSmall)});
  mover().End();  // nobody polls, so there is no next executor
  EXPECT_FALSE(leave->done.has_value());
  EXPECT_FALSE(back->done.has_value());
}

// ---- within an executor

TEST(ExecutorMemory, CopiesOnlyBetweenWhatItKnows) {
  auto devices = OpenLevelZeroDevices({.driver_library = XPUD_DRIVER_PATH, .device = "cpu"});
  ASSERT_TRUE(devices.ok()) << devices.status();
  LevelZeroDevice& device = *devices->front();
  process::ExecutorMemory memory(device.memory());
  auto list = *device.memory().CreateList();
  AddressSpace chunks = *AddressSpace::ForChunks();
  AddressSpace hosts = *AddressSpace::ForHostMemory(0);
  const uint64_t chunk = *chunks.Take(kSmall), host = *hosts.Take(kSmall);
  const UniqueFd fd = *CreateSealedMemfd("xpud-test", kSmall);
  const auto copy = [&](uint64_t at, uint64_t from, uint64_t bytes) {
    return memory.Copy(*list, LevelZeroMemory::Way::kIn, at, from, bytes).code();
  };
  EXPECT_EQ(copy(chunk, host, 1), StatusCode::kInternal) << "no chunk";
  ASSERT_TRUE(memory.Reserve(chunk, kSmall).ok());
  EXPECT_EQ(copy(chunk, host, 1), StatusCode::kNotFound) << "no host memory";
  std::thread importer([&] { EXPECT_TRUE(memory.ImportHost(device, host, kSmall, fd).ok()); });
  EXPECT_EQ(copy(chunk, host, 1), StatusCode::kFailedPrecondition) << "it has waited; but the chunk is away";
  importer.join();
  UniqueFd exported;
  ASSERT_TRUE(memory.Allocate(chunk, kSmall, exported).ok());
  EXPECT_EQ(copy(chunk, host, kSmall), StatusCode::kOk);
  EXPECT_EQ(copy(chunk + 1, host + 1, kSmall - 1), StatusCode::kOk);
  EXPECT_EQ(copy(chunk + 1, host, kSmall), StatusCode::kOutOfRange);
  EXPECT_EQ(copy(chunk - 1, host, 1), StatusCode::kInternal);
  EXPECT_EQ(copy(chunk, host - 1, 1), StatusCode::kNotFound);
  EXPECT_EQ(copy(chunk, host + 1, kSmall), StatusCode::kNotFound);
  EXPECT_EQ(copy(chunk, host + kSmall, 1), StatusCode::kNotFound);
  EXPECT_EQ(copy(chunk, host + 2, UINT64_MAX), StatusCode::kNotFound);
  memory.ReleaseHost(host);
  EXPECT_EQ(copy(chunk, host, 1), StatusCode::kNotFound);
  memory.Free(chunk);
}

INSTANTIATE_TEST_SUITE_P(Device, MoverTest,
                         ::testing::Values(Driven::kInProcess, Driven::kByExecutor, Driven::kByTwoExecutors),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Device, ExecutorMoverTest,
                         ::testing::Values(Driven::kByExecutor, Driven::kByTwoExecutors), NameOf);

}  // namespace
}  // namespace xpud::executor::testing

int main(int argc, char** argv) {
  return xpud::executor::testing::RunDeviceTests(argc, argv, XPUD_DRIVER_PATH);
}
