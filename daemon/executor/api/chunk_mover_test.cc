#include "daemon/executor/api/chunk_mover.h"

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xpud::executor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class PlainChunk final : public Chunk {
 public:
  PlainChunk() : Chunk(nullptr, 100) {}
};

// What transfers do: each waits until it may go on.
struct Script {
  std::atomic<bool> go{true};
  std::atomic<int> running{0}, ran{0};
  std::atomic<bool> interrupted{false};
  int runs = 1;  // that each needs
  absl::Status result;
};

class ScriptedTransfer final : public Transfer {
 public:
  explicit ScriptedTransfer(Script& script) : script_(script) {}
  absl::Status Run(uint32_t thread, MoveControl& control) override {
    EXPECT_LT(thread, ChunkMover::kThreads);
    ++script_.running;
    while (!script_.go && !control.ended()) std::this_thread::yield();
    ++script_.ran;
    --script_.running;
    if (!control.Commit()) return absl::CancelledError("forgotten");
    return script_.result;
  }
  bool Finish() override { return ++runs_ == script_.runs; }

 private:
  Script& script_;
  int runs_ = 0;
};

class ScriptedTransfers final : public Transfers {
 public:
  std::unique_ptr<Transfer> Leave(Chunk&, HostParts) override {
    return std::make_unique<ScriptedTransfer>(out);
  }
  std::unique_ptr<Transfer> Return(Chunk&, HostParts) override {
    return std::make_unique<ScriptedTransfer>(in);
  }
  void Interrupt() override { out.interrupted = true; }
  Script out, in;
};

class ChunkMoverTest : public ::testing::Test {
 protected:
  Mover::Done Note(int number) {
    return [this, number](const absl::Status& status) { done_.emplace_back(number, status.code()); };
  }
  void AwaitDone(size_t count) {
    while (done_.size() < count) mover_.FinishDone();
  }

  std::array<PlainChunk, 8> chunks_;
  ScriptedTransfers transfers_;
  std::atomic<int> wakes_{0};
  std::vector<std::pair<int, absl::StatusCode>> done_;
  ChunkMover mover_{[this] { ++wakes_; }, transfers_};
};

constexpr auto kOk = absl::StatusCode::kOk, kCancelled = absl::StatusCode::kCancelled;

TEST_F(ChunkMoverTest, BothWaysRunAtOnceWithTwoThreadsEach) {
  transfers_.out.go = transfers_.in.go = false;
  for (int i = 0; i < 4; ++i) {
    mover_.StartLeave(chunks_[static_cast<size_t>(i)], {}, Note(i));
    mover_.StartReturn(chunks_[static_cast<size_t>(i) + 4], {}, Note(i + 4));
  }
  while (transfers_.out.running + transfers_.in.running < 4) std::this_thread::yield();
  mover_.FinishDone();
  EXPECT_THAT(done_, IsEmpty());
  EXPECT_EQ(wakes_, 0);
  transfers_.in.go = true;
  AwaitDone(4);
  for (const auto& [number, code] : done_) EXPECT_GE(number, 4) << "the others wait";
  transfers_.out.go = true;
  AwaitDone(8);
  EXPECT_EQ(wakes_, 8);
}

TEST_F(ChunkMoverTest, TransferRunsUntilItIsFinished) {
  transfers_.out.runs = 3;
  mover_.StartLeave(chunks_[0], {}, Note(0));
  AwaitDone(1);
  EXPECT_EQ(transfers_.out.ran, 3);
  transfers_.out.result = absl::InternalError("");
  mover_.StartLeave(chunks_[0], {}, Note(1));
  AwaitDone(2);
  EXPECT_EQ(transfers_.out.ran, 4) << "an error ends it";
  EXPECT_THAT(done_, ElementsAre(std::pair(0, kOk), std::pair(1, absl::StatusCode::kInternal)));
}

TEST_F(ChunkMoverTest, ForgottenMoveDoesNotWaitForThoseBeforeIt) {
  transfers_.out.go = false;
  std::vector<std::shared_ptr<Move>> moves;
  for (int i = 0; i < 4; ++i)
    moves.push_back(mover_.StartLeave(chunks_[static_cast<size_t>(i)], {}, Note(i)));
  while (transfers_.out.running < 2) std::this_thread::yield();
  EXPECT_TRUE(moves[3]->Forget());
  EXPECT_TRUE(moves[3]->Forget());
  mover_.FinishDone();
  EXPECT_THAT(done_, ElementsAre(std::pair(3, kCancelled)));
  EXPECT_TRUE(moves[0]->Forget()) << "it runs";
  transfers_.out.go = true;
  AwaitDone(4);
  EXPECT_EQ(transfers_.out.ran, 3);
  for (const auto& [number, code] : done_) EXPECT_EQ(code, number % 3 == 0 ? kCancelled : kOk) << number;
  EXPECT_FALSE(moves[1]->Forget());
}

TEST_F(ChunkMoverTest, DoneMayStartTheNextMoveOfItsChunk) {
  mover_.StartLeave(chunks_[0], {}, [&](const absl::Status& left) {
    EXPECT_TRUE(left.ok());
    mover_.StartReturn(chunks_[0], {}, Note(0));
  });
  AwaitDone(1);
}

TEST_F(ChunkMoverTest, EndInterruptsWhatRunsAndDropsTheRest) {
  transfers_.out.go = false;
  std::vector<std::shared_ptr<Move>> moves;
  {
    std::array<PlainChunk, 4> chunks;
    for (PlainChunk& chunk : chunks) moves.push_back(mover_.StartLeave(chunk, {}, Note(0)));
    while (transfers_.out.running < 2) std::this_thread::yield();
    mover_.End();
    EXPECT_TRUE(transfers_.out.interrupted);
  }
  mover_.FinishDone();
  EXPECT_EQ(transfers_.out.ran, 2);
  EXPECT_THAT(done_, IsEmpty());
  for (const auto& move : moves) move->Forget();
}

TEST_F(ChunkMoverTest, ChunkThatMovesMustNotEnd) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  transfers_.out.go = false;
  auto chunk = std::make_unique<PlainChunk>();
  mover_.StartLeave(*chunk, {}, Note(0));
  EXPECT_DEATH(chunk.reset(), "moves_");
  EXPECT_DEATH(mover_.StartReturn(*chunk, {}, Note(0)), "moves_");
  mover_.End();
}

}  // namespace
}  // namespace xpud::executor
