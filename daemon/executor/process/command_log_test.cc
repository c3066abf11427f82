#include "daemon/executor/process/command_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace xpud::executor::process {
namespace {

using Kind = MemoryUse::Kind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr uint64_t kTaken = 1000;

// A queue whose commands are named by one letter each.
class Queue {
 public:
  void Run(char name, std::vector<MemoryUse> uses, uint64_t position = 0) {
    const auto byte = static_cast<std::byte>(name);
    log.Append({&byte, 1}, uses, 0);
    log[log.size() - 1].position = position;
  }
  void Mark(uint64_t value, uint64_t position = 0) {
    const auto byte = static_cast<std::byte>('|');
    log.Append({&byte, 1}, {}, value);
    log[log.size() - 1].position = position;
  }
  std::string Names() {
    std::string names;
    log.ForEachFrom(0, [&](CommandLog::Command&, std::span<const std::byte> messages) {
      names += static_cast<char>(messages[0]);
      return true;
    });
    return names;
  }
  CommandLog log;
};

MemoryUse Read(uint64_t address) { return {address, 10, Kind::kRead}; }
MemoryUse Write(uint64_t address) { return {address, 10, Kind::kWrite}; }
MemoryUse WritePart(uint64_t address) { return {address, 10, Kind::kWritePart}; }

TEST(CommandLog, ForgetsWhatIsKnownToBeDone) {
  Queue queue;
  queue.Run('a', {});
  queue.Mark(5);
  queue.Run('b', {});
  queue.Mark(7);
  queue.Run('c', {});
  std::string seen;
  const auto visit = [&](std::span<const std::byte> messages) { seen += static_cast<char>(messages[0]); };
  queue.log.Complete(4, visit);
  EXPECT_EQ(seen, "");
  queue.log.Complete(6, visit);
  EXPECT_EQ(seen, "a|");
  EXPECT_EQ(queue.Names(), "b|c");
  queue.log.Complete(100, visit);
  EXPECT_EQ(queue.Names(), "c");
}

TEST(CommandLog, RunsAgainWhatReadsOnlyWhatStands) {
  Queue queue;
  queue.Run('a', {Read(0), Write(100)});
  queue.Run('b', {Read(100), Write(200)});
  queue.Run('c', {Read(200), Read(0), Write(100)});  // overwrites what `a` writes again first
  const auto damage = queue.log.Rewind(kTaken);
  EXPECT_EQ(damage.started, 3u);
  EXPECT_THAT(damage.spoilt, IsEmpty());
}

TEST(CommandLog, WhatReadsMemoryThatALaterOneMayHaveOverwrittenIsLost) {
  Queue queue;
  queue.Run('a', {Read(0), Write(100)});
  queue.Run('b', {Read(200), Write(0)});
  queue.Run('c', {Read(100), Write(300)});
  queue.Run('d', {Read(0), Write(400)});
  const auto damage = queue.log.Rewind(kTaken);
  EXPECT_THAT(damage.spoilt, testing::Contains(Pair(100, 10)));
  EXPECT_THAT(damage.spoilt, testing::Contains(Pair(300, 10)));
  EXPECT_THAT(damage.spoilt, testing::Not(testing::Contains(Pair(0, 10))));
}

TEST(CommandLog, KnowsWhatItsCommandsWrite) {
  Queue queue;
  queue.Run('a', {Read(0), Write(100)});
  queue.Run('b', {Read(100), WritePart(200)});
  std::vector<MemoryRange> written;
  queue.log.AddWritten(written);
  EXPECT_THAT(written, ElementsAre(Pair(100, 10), Pair(200, 10)));
}

TEST(CommandLog, AnUpdateInPlaceIsLostUnlessItHadNotBegun) {
  Queue queue;
  queue.Run('a', {Read(0), Write(0)});
  EXPECT_THAT(queue.log.Rewind(kTaken).spoilt, testing::Contains(Pair(0, 10)));
  Queue other;
  other.Run('a', {Read(0), Write(0)}, kTaken + 1);
  EXPECT_THAT(other.log.Rewind(kTaken).spoilt, IsEmpty());
}

TEST(CommandLog, WhatComesAfterAMarkThatWasNotReachedHadNotBegun) {
  Queue queue;
  queue.Run('a', {Read(0), Write(100)});
  queue.Mark(5);
  queue.Run('b', {Read(200), Write(0)});
  queue.Run('c', {Read(300), Write(300)});
  const auto damage = queue.log.Rewind(kTaken);
  EXPECT_EQ(damage.started, 2u);
  EXPECT_THAT(damage.spoilt, IsEmpty());
}

TEST(CommandLog, AnUpdateOfWhatIsMadeAgainIsNotLost) {
  Queue queue;
  queue.Run('a', {Read(100), Write(0)});
  queue.Run('b', {Read(0), Write(0)});
  EXPECT_THAT(queue.log.Rewind(kTaken).spoilt, IsEmpty());
}

TEST(CommandLog, APartIsRestoredByItsOwnWriterAlone) {
  Queue one;
  one.Run('a', {WritePart(0)});
  one.Run('b', {Read(0), Write(100)});
  EXPECT_THAT(one.log.Rewind(kTaken).spoilt, IsEmpty());
  Queue two;
  two.Run('a', {WritePart(0)});
  two.Run('b', {Read(0), Write(100)});
  two.Run('c', {WritePart(0)});  // b would read memory that c may have changed
  EXPECT_THAT(two.log.Rewind(kTaken).spoilt, ElementsAre(Pair(100, 10), Pair(100, 10)));
}

// Runs random commands with marks on memory of eight cells. A random number of them are done when the
// executor dies in the middle of the next one, after it has taken more. Then the rest runs again.
class Simulation {
 public:
  explicit Simulation(uint32_t seed) : random_(seed) {}

  void Run() {
    const size_t count = 1 + Pick(12);
    const uint64_t marked = 2 + Pick(12);  // every so many steps
    for (size_t i = 0; i < count; ++i) {
      Step step{static_cast<char>('a' + i), {}, Pick(kCells), Pick(4) == 0, Pick(marked) == 0};
      for (size_t reads = Pick(3); reads != 0; --reads) step.reads.push_back(Pick(kCells));
      steps_.push_back(step);
    }
    const size_t done = Pick(count + 1);
    Memory expected = Start(), memory = Start();
    for (const Step& step : steps_) Execute(step, expected);
    for (size_t i = 0; i < done; ++i) Execute(steps_[i], memory);
    const bool begun = done < count && Pick(2) == 0;  // and has written half
    if (begun) {
      memory[steps_[done].target][0] = -1;
      if (!steps_[done].part) memory[steps_[done].target][1] = -1;
    }
    const CommandLog::Damage damage = Rewind(done, begun ? done : done - std::min(done, Pick(2)));
    for (char name : queue_.Names())
      if (name != '|') Execute(steps_[static_cast<size_t>(name - 'a')], memory);
    for (uint64_t cell = 0; cell < kCells; ++cell) {
      const bool spoilt =
          std::any_of(damage.spoilt.begin(), damage.spoilt.end(), [&](const MemoryRange& range) {
            return range.first < cell * 10 + 10 && cell * 10 < range.first + range.second;
          });
      if (!spoilt) {
        EXPECT_EQ(memory[cell], expected[cell]) << "cell " << cell;
      }
    }
    damaged_ = !damage.spoilt.empty();
  }
  bool damaged() const { return damaged_; }

 private:
  static constexpr uint64_t kCells = 8;
  using Memory = std::array<std::array<int64_t, 2>, kCells>;  // halves, for partial writes
  struct Step {
    char name;
    std::vector<uint64_t> reads;
    uint64_t target;
    bool part;
    bool marked;
  };

  uint64_t Pick(uint64_t count) { return random_() % count; }
  static Memory Start() {
    Memory memory;
    for (uint64_t i = 0; i < kCells; ++i) memory[i] = {static_cast<int64_t>(i), static_cast<int64_t>(i)};
    return memory;
  }
  static void Execute(const Step& step, Memory& memory) {
    int64_t sum = step.name - 'a';
    for (uint64_t cell : step.reads) sum = sum * 31 + memory[cell][0] * 7 + memory[cell][1];
    memory[step.target][0] = sum % 1'000'003;
    if (!step.part) memory[step.target][1] = sum % 1'000'003;
  }
  // The last value that was observed is `reached` or smaller.
  CommandLog::Damage Rewind(size_t done, uint64_t reached) {
    const size_t taken = done + Pick(steps_.size() - done + 1);
    for (size_t i = 0; i < steps_.size(); ++i) {
      std::vector<MemoryUse> uses;
      for (uint64_t cell : steps_[i].reads) uses.push_back(Read(cell * 10));
      uses.push_back(steps_[i].part ? WritePart(steps_[i].target * 10) : Write(steps_[i].target * 10));
      const uint64_t position = i <= taken ? kTaken : kTaken + 1;
      queue_.Run(steps_[i].name, uses, position);
      if (steps_[i].marked) queue_.Mark(i + 1, position);
    }
    queue_.log.Complete(reached, [](std::span<const std::byte>) {});
    return queue_.log.Rewind(kTaken);
  }

  std::mt19937 random_;
  std::vector<Step> steps_;
  Queue queue_;
  bool damaged_ = false;
};

TEST(CommandLog, WhatItDoesNotCallSpoiltIsRight) {
  int damaged = 0;
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    Simulation simulation(seed);
    simulation.Run();
    damaged += simulation.damaged();
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_LT(damaged, 19000);  // the log must not simply report everything as lost
}

}  // namespace
}  // namespace xpud::executor::process
