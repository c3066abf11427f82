#include "daemon/stream/in_flight.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xpud::stream {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr uint64_t kAnnounced = 100;

class InFlightTest : public ::testing::Test {
 protected:
  memory::Block Block(uint64_t bytes) {
    blocks_ += 4096;
    return {reinterpret_cast<std::byte*>(blocks_), bytes, nullptr, {}};
  }
  void Advance(uint64_t done) {
    freed_.clear();
    errors_.clear();
    commands_.clear();
    queue_.Advance(
        done,
        [&](std::span<const uint64_t> suspects, uint64_t word, const Reporter& reporter) {
          suspects_.assign(suspects.begin(), suspects.end());
          errors_.emplace_back(suspects.front(), word);
          commands_.push_back(reporter.name);
        },
        [&](const memory::Block& block) { freed_.push_back(block.bytes); });
  }

  InFlight::Words words_ = {};
  InFlight queue_{words_, &words_};
  uintptr_t blocks_ = 0;
  std::vector<uint64_t> freed_;
  std::vector<std::pair<uint64_t, uint64_t>> errors_;
  std::vector<std::string> commands_;
  std::vector<uint64_t> suspects_;  // of the last error
};

TEST_F(InFlightTest, MemoryIsFreedOnceTheDeviceIsPastItsLastUse) {
  queue_.Retire(Block(512), 3);
  queue_.Retire(Block(1024), 5);
  Advance(2);
  EXPECT_THAT(freed_, IsEmpty());
  Advance(4);
  EXPECT_THAT(freed_, ElementsAre(512));
  Advance(5);
  EXPECT_THAT(freed_, ElementsAre(1024));
}

TEST_F(InFlightTest, TheQueueItselfReusesMemoryOfItsSizeAtOnceAndOnlyOnce) {
  const memory::Block block = Block(512);
  queue_.Retire(block, 3);
  EXPECT_FALSE(queue_.Reuse(1024, kAnnounced).has_value());
  EXPECT_EQ(queue_.Reuse(512, kAnnounced)->address, block.address);
  EXPECT_FALSE(queue_.Reuse(512, kAnnounced).has_value());
  Advance(10);
  EXPECT_THAT(freed_, IsEmpty());
}

TEST_F(InFlightTest, MemoryThatTheNextRunOfUnfinishedWorkReadsIsNotReused) {
  memory::Block block = Block(512);
  block.born = kAnnounced;
  queue_.Retire(block, kAnnounced + 1);
  EXPECT_FALSE(queue_.Reuse(512, kAnnounced).has_value());
  EXPECT_TRUE(queue_.Reuse(512, kAnnounced + 1).has_value());
  block.born = kAnnounced + 1;  // whatever it held is made again too
  queue_.Retire(block, kAnnounced + 2);
  EXPECT_TRUE(queue_.Reuse(512, kAnnounced).has_value());
}

TEST_F(InFlightTest, AnErrorIsReportedWithItsCommandWhenThatIsDone) {
  uint64_t* const first = queue_.TakeErrorSlot(7, 1, [] { return Reporter{"embedding"}; });
  uint64_t* const second = queue_.TakeErrorSlot(9, 2, [] { return Reporter{"gather"}; });
  ASSERT_NE(first, second);
  *second = 42;
  Advance(8);
  EXPECT_THAT(errors_, IsEmpty());
  Advance(9);
  EXPECT_THAT(errors_, ElementsAre(Pair(9, 42)));
  EXPECT_THAT(commands_, ElementsAre("gather"));
}

TEST_F(InFlightTest, CommandsThatAreWordedAlikeReportInTheSamePlaceEachTime) {
  int described = 0;
  const auto describe = [&] { return Reporter{absl::StrCat("embedding ", ++described)}; };
  uint64_t* const place = queue_.TakeErrorSlot(1, 30, describe);
  for (uint64_t sequence = 2; sequence < 10 * InFlight::kErrorSlots; ++sequence)
    ASSERT_EQ(queue_.TakeErrorSlot(sequence, 30, describe), place);
  ASSERT_NE(queue_.TakeErrorSlot(500, 30 + InFlight::kErrorSlots, [] { return Reporter{"another"}; }), place);
  *place = 42;
  Advance(3);
  EXPECT_THAT(errors_, ElementsAre(Pair(1, 42))) << "once";
  *place = 43;
  Advance(4);
  EXPECT_THAT(errors_, ElementsAre(Pair(4, 43)));
  Advance(1000);
  EXPECT_EQ(queue_.TakeErrorSlot(1001, 30, describe), place);
  EXPECT_EQ(described, 1);
}

// What the others have reported is not in the word, so none of them may be taken for right.
TEST_F(InFlightTest, AllThatShareAWordAreSuspects) {
  const auto name = [] { return Reporter{"gather"}; };
  uint64_t* const word = queue_.TakeErrorSlot(1, 30, name);
  queue_.TakeErrorSlot(2, 31, name);
  queue_.TakeErrorSlot(3, 30, name);
  queue_.TakeErrorSlot(9, 30, name);
  *word = 42;
  Advance(3);
  EXPECT_THAT(errors_, ElementsAre(Pair(1, 42)));
  EXPECT_THAT(suspects_, ElementsAre(1, 3, 9));
}

TEST_F(InFlightTest, AUsedSlotIsCleanWhenItIsTakenAgain) {
  const auto name = [] { return Reporter{"gather"}; };
  for (uint64_t sequence = 1; sequence < 3 * InFlight::kErrorSlots; ++sequence) {
    uint64_t* const slot = queue_.TakeErrorSlot(sequence, sequence, name);
    ASSERT_EQ(*slot, 0u);
    *slot = sequence;
    Advance(sequence);
    EXPECT_THAT(errors_, ElementsAre(Pair(sequence, sequence)));
  }
}

TEST_F(InFlightTest, SlotsRunOutAndComeBack) {
  const auto name = [] { return Reporter{"gather"}; };
  for (size_t i = 1; i <= InFlight::kErrorSlots; ++i) ASSERT_NE(queue_.TakeErrorSlot(i, i, name), nullptr);
  EXPECT_EQ(queue_.TakeErrorSlot(100, 100, name), nullptr);
  queue_.ReturnErrorSlot();
  EXPECT_NE(queue_.TakeErrorSlot(100, 100, name), nullptr);
  EXPECT_EQ(queue_.TakeErrorSlot(101, 101, name), nullptr);
  Advance(1);
  EXPECT_NE(queue_.TakeErrorSlot(101, 101, name), nullptr);
}

}  // namespace
}  // namespace xpud::stream
