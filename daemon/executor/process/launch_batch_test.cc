#include "daemon/executor/process/launch_batch.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "daemon/executor/process/test_launches.h"

namespace xpud::executor::process {
namespace {

constexpr size_t kBytes = 2 * sizeof(Message);

TEST(LaunchBatchTest, FewLaunchesAreNoBatch) {
  TestLaunches launches;
  launches.Add(1).Add(1).Add(1);
  EXPECT_EQ(CutBatch(launches.bytes()).launches, 0u);
  EXPECT_EQ(CutBatch(launches.bytes()).bytes, 3 * kBytes);
  launches.AddWrite();
  EXPECT_EQ(CutBatch(launches.bytes()).launches, 0u);
  EXPECT_EQ(CutBatch(launches.bytes()).bytes, 3 * kBytes);
}

TEST(LaunchBatchTest, LaunchesThatAreAlikeAreCutAnywhere) {
  TestLaunches launches;
  for (uint64_t i = 0; i < 11; ++i) launches.Add(1, i);
  const LaunchBatch batch = CutBatch(launches.bytes());
  EXPECT_EQ(batch.launches, 8u);
  EXPECT_EQ(batch.bytes, 8 * kBytes);
  for (uint64_t i = 0; i < 100; ++i) launches.Add(1, i);
  EXPECT_EQ(CutBatch(launches.bytes()).launches, kMaxBatchLaunches);
}

TEST(LaunchBatchTest, OthersWaitForMoreUnlessSomethingElseFollows) {
  TestLaunches launches;
  for (uint32_t i = 0; i < 11; ++i) launches.Add(i);
  EXPECT_EQ(CutBatch(launches.bytes()).launches, 0u);
  EXPECT_EQ(CutBatch(launches.bytes()).bytes, 11 * kBytes);
  TestLaunches ended = launches;
  ended.AddWrite();
  EXPECT_EQ(CutBatch(ended.bytes()).launches, 8u);
  TestLaunches other = launches;
  other.Add(11, 0, 1, /*queue=*/1);
  EXPECT_EQ(CutBatch(other.bytes()).launches, 8u);
}

// Whatever else: work that goes first waits for a batch as a whole.
TEST(LaunchBatchTest, ABatchEndsWithTheLaunchThatMakesItLong) {
  TestLaunches launches;
  for (uint32_t i = 0; i < 40; ++i) launches.Add(1, i, 1, 0, /*ideal_ns=*/10'000);
  EXPECT_EQ(CutBatch(launches.bytes()).launches, 8u);
  TestLaunches longer;
  for (uint32_t i = 0; i < 40; ++i) longer.Add(1, i, 1, 0, /*ideal_ns=*/30'000);
  EXPECT_EQ(CutBatch(longer.bytes()).launches, 0u) << "a few long launches gain nothing";
  EXPECT_EQ(CutBatch(longer.bytes()).bytes, 3 * kBytes);
}

// A program of 300 launches repeats. Wherever reading begins, the cuts soon fall on the same launches.
TEST(LaunchBatchTest, ARepeatedProgramIsCutAtTheSamePlaces) {
  std::mt19937 random(1);
  std::vector<uint32_t> program(300);
  for (uint32_t& kernel : program) kernel = random() % 40;
  TestLaunches launches;
  for (size_t i = 0; i < 40 * program.size(); ++i) launches.Add(program[i % program.size()]);
  std::set<size_t> cuts[3];
  for (size_t start = 0; start < 3; ++start) {
    size_t at = 97 * start;
    while (at < 39 * program.size()) {
      const LaunchBatch batch = CutBatch(launches.bytes().subspan(at * kBytes));
      ASSERT_NE(batch.launches, 0u);
      ASSERT_LE(batch.launches, kMaxBatchLaunches);
      at += batch.launches;
      if (at > 20 * program.size()) cuts[start].insert(at % program.size());
    }
  }
  EXPECT_EQ(cuts[0], cuts[1]);
  EXPECT_EQ(cuts[0], cuts[2]);
  EXPECT_LT(cuts[0].size(), 30u);
}

}  // namespace
}  // namespace xpud::executor::process
