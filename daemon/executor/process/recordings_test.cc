#include "daemon/executor/process/recordings.h"

#include <gtest/gtest.h>

#include "daemon/executor/process/test_launches.h"

namespace xpud::executor::process {
namespace {

TestLaunches Program(uint32_t kernel, uint64_t argument, uint32_t queue = 0) {
  TestLaunches launches;
  for (int i = 0; i < 8; ++i) launches.Add(kernel, argument, 1, queue);
  return launches;
}

class RecordingsTest : public ::testing::Test {
 protected:
  Recording* Find(const TestLaunches& launches) {
    return recordings_.Find(CutBatch(launches.bytes()), launches.bytes());
  }
  // As often as it takes.
  Recording* Record(const TestLaunches& launches) {
    Recording* recording = nullptr;
    for (int i = 0; i < 5 && recording == nullptr; ++i) recording = Find(launches);
    if (recording == nullptr) return nullptr;
    recording->messages.assign(launches.bytes().begin(), launches.bytes().end());
    return recording;
  }
  Recordings recordings_;
};

TEST_F(RecordingsTest, RecordsWhatComesAgain) {
  const TestLaunches program = Program(1, 0);
  EXPECT_EQ(Find(program), nullptr);
  EXPECT_EQ(Find(Program(1, 7)), nullptr);  // of the same structure
  Recording* const recording = Find(program);
  ASSERT_NE(recording, nullptr);
  EXPECT_FALSE(recording->Holds(program.bytes()));
  Record(program);
  Recording* const again = Find(program);
  ASSERT_NE(again, nullptr);
  EXPECT_TRUE(again->Holds(program.bytes()));
}

TEST_F(RecordingsTest, KeepsAFewSetsOfArgumentsAndChangesTheOldest) {
  for (uint64_t i = 0; i < 4; ++i) ASSERT_NE(Record(Program(1, i)), nullptr);
  EXPECT_EQ(recordings_.size(), 4u);
  for (uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(Find(Program(1, i))->Holds(Program(1, i).bytes()));
  Recording* const changed = Find(Program(1, 4));
  ASSERT_NE(changed, nullptr);
  EXPECT_TRUE(changed->Holds(Program(1, 0).bytes()));
  EXPECT_EQ(recordings_.size(), 4u);
}

TEST_F(RecordingsTest, IsBounded) {
  for (uint32_t i = 0; i < 1000; ++i) {
    ASSERT_NE(Record(Program(i, 0)), nullptr);
    ASSERT_LE(recordings_.size(), 128u);
  }
  EXPECT_TRUE(Find(Program(999, 0))->Holds(Program(999, 0).bytes()));
  EXPECT_FALSE(Find(Program(0, 0))->Holds(Program(0, 0).bytes()));  // gone, but known to come again
}

TEST_F(RecordingsTest, ForgetsAQueueAndRefuses) {
  Record(Program(1, 0, 0));
  Record(Program(1, 0, 1));
  recordings_.Forget(0);
  EXPECT_EQ(recordings_.size(), 1u);
  EXPECT_TRUE(Find(Program(1, 0, 1))->Holds(Program(1, 0, 1).bytes()));
  recordings_.Refuse(CutBatch(Program(1, 0, 1).bytes()));
  EXPECT_EQ(recordings_.size(), 0u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Find(Program(1, 0, 1)), nullptr);
}

}  // namespace
}  // namespace xpud::executor::process
