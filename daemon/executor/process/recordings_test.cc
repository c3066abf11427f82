#include "daemon/executor/process/recordings.h"

#include <gtest/gtest.h>

#include "daemon/executor/process/test_launches.h"

namespace xpud::executor::process {
namespace {

TestLaunches Program(uint32_t kernel, uint64_t argument = 0, uint32_t queue = 0) {
  TestLaunches launches;
  for (int i = 0; i < 8; ++i) launches.Add(kernel, argument, 1, queue);
  return launches;
}

class RecordingsTest : public ::testing::Test {
 protected:
  // Returns nullopt, or the number of messages in the recording.
  std::optional<size_t> Find(const TestLaunches& launches) {
    const Recording* const found = recordings_.Find(launches.bytes());
    return found == nullptr ? std::nullopt : std::optional(found->messages.size());
  }
  // Looks the batch up until it must be recorded, and records it. Returns false if that never happens.
  bool Record(const TestLaunches& launches) {
    for (int i = 0; i < 3; ++i) {
      Recording* const recording = recordings_.Find(launches.bytes());
      if (recording == nullptr) continue;
      recording->Keep(launches.bytes());
      return true;
    }
    return false;
  }
  const std::optional<size_t> kWhole = Program(0).bytes().size();
  Recordings recordings_;
};

TEST_F(RecordingsTest, RecordsWhatComesForTheThirdTime) {
  EXPECT_EQ(Find(Program(1)), std::nullopt);
  EXPECT_EQ(Find(Program(1, 7)), std::nullopt);  // another batch
  EXPECT_EQ(Find(Program(1)), std::nullopt);
  EXPECT_EQ(Find(Program(1)), 0u);
  EXPECT_EQ(Find(Program(1, 7)), std::nullopt);
  EXPECT_TRUE(Record(Program(2)));
  EXPECT_EQ(Find(Program(2)), kWhole);
}

TEST_F(RecordingsTest, WhatIsUsedStaysWhenItIsFull) {
  uint32_t recorded = 0;
  while (Record(Program(recorded))) ++recorded;
  EXPECT_EQ(recordings_.size(), recorded);
  for (uint32_t i = 0; i < recorded; ++i) EXPECT_EQ(Find(Program(i)), kWhole);
  // When the first batches have not occurred for long, others replace them.
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(Find(Program(1)), kWhole);
  EXPECT_TRUE(Record(Program(recorded)));
  EXPECT_EQ(recordings_.size(), recorded);
  EXPECT_EQ(Find(Program(1)), kWhole);
}

TEST_F(RecordingsTest, ForgetsAQueue) {
  Record(Program(1, 0, 0));
  Record(Program(1, 0, 1));
  recordings_.Forget(0);
  EXPECT_EQ(recordings_.size(), 1u);
  EXPECT_EQ(Find(Program(1, 0, 1)), kWhole);
}

TEST_F(RecordingsTest, ForgetsAKernelWhoseNumberWillBeAnothers) {
  TestLaunches both = Program(1);
  both.Add(2, 0, 1, 0);
  Record(both);
  Record(Program(3));
  recordings_.ForgetKernel(2);
  EXPECT_EQ(recordings_.size(), 1u);
  EXPECT_EQ(Find(Program(3)), kWhole);
}

TEST_F(RecordingsTest, DoesNotTryAgainWhatWasRefused) {
  for (int i = 0; i < 2; ++i) Find(Program(1));
  ASSERT_EQ(Find(Program(1)), 0u);
  recordings_.Refuse(Program(1).bytes());
  EXPECT_EQ(recordings_.size(), 0u);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Find(Program(1)), std::nullopt);
}

}  // namespace
}  // namespace xpud::executor::process
