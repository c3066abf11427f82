#include "daemon/handles/buffer_table.h"

#include <memory>

#include "gtest/gtest.h"

namespace xpud::handles {
namespace {

using memory::Allocation;
using memory::Poison;

// A table of one of a user's sessions.
class BufferTableTest : public ::testing::Test {
 protected:
  inline static const Tenant kUser = {7};

  Buffer* Insert(wire::Handle handle) { return Insert(table_, handle); }
  // Null where it is not admitted.
  static Buffer* Insert(BufferTable& table, wire::Handle handle) {
    return table.Admit(handle).ok() ? table.Insert(handle) : nullptr;
  }

  TableSpace space_;
  BufferTable table_{space_, kUser};
};

TEST_F(BufferTableTest, AHandleFindsItsBufferUntilItIsErased) {
  Buffer* buffer = Insert({1, 1});
  ASSERT_NE(buffer, nullptr);
  EXPECT_EQ(table_.Find({1, 1}), buffer);
  table_.Erase(*buffer);
  EXPECT_EQ(table_.Find({1, 1}), nullptr);
  EXPECT_EQ(table_.live(), 0u);
}

TEST_F(BufferTableTest, StaleNullAndInventedHandlesAreNotFound) {
  table_.Erase(*Insert({1, 1}));
  Insert({1, 2});
  EXPECT_EQ(table_.Find({1, 1}), nullptr);
  EXPECT_EQ(table_.Find({1, 3}), nullptr);
  EXPECT_EQ(table_.Find({0, 0}), nullptr);
  EXPECT_EQ(table_.Find({1, 0}), nullptr);
  EXPECT_EQ(table_.Find({2, 1}), nullptr);
  EXPECT_EQ(table_.Find({2, 0}), nullptr);
  EXPECT_EQ(table_.Find({0xffffffffu, 1}), nullptr);
}

TEST_F(BufferTableTest, IdsAreDenseAndGenerationsGrow) {
  EXPECT_EQ(Insert({0, 1}), nullptr) << "id 0 is null";
  EXPECT_EQ(Insert({2, 1}), nullptr) << "id 1 was never made";
  EXPECT_EQ(Insert({0xffffffffu, 1}), nullptr);
  EXPECT_EQ(Insert({1, 0}), nullptr);
  Buffer* buffer = Insert({1, 5});
  ASSERT_NE(buffer, nullptr);
  EXPECT_EQ(Insert({1, 6}), nullptr) << "in use";
  table_.Erase(*buffer);
  EXPECT_EQ(Insert({1, 5}), nullptr) << "a generation is never used again";
  EXPECT_NE(Insert({1, 6}), nullptr);
}

TEST_F(BufferTableTest, PoisonThatGoesWithTheReportGoesFromAllAndFromThoseOnly) {
  constexpr memory::Fault kFault = {1, 0};
  Buffer& buffer = *Insert({1, 1});
  Allocation& a = buffer.allocation();
  Allocation& b = Insert({2, 1})->allocation();
  Allocation& fresh = Insert({3, 1})->allocation();
  a.written = b.written = true;
  table_.PoisonSkipped(fresh, kFault);
  table_.PoisonSkipped(a, kFault);
  table_.PoisonSkipped(b, kFault);
  b.poison = Poison::kNone;  // overwritten
  table_.PoisonSkipped(b, kFault);
  table_.Erase(buffer);
  Allocation& next = Insert({1, 2})->allocation();
  EXPECT_EQ(next.poison, Poison::kNone) << "of the one that had its place";
  next.written = true;
  table_.PoisonSkipped(next, kFault);
  table_.ForgiveInPlace(kFault);
  EXPECT_EQ(next.poison, Poison::kNone);
  EXPECT_EQ(b.poison, Poison::kNone);
  EXPECT_EQ(fresh.poison, Poison::kFresh);
  table_.PoisonSkipped(b, kFault);
  table_.ForgiveInPlace(kFault);
  EXPECT_EQ(b.poison, Poison::kNone) << "a second time";
}

TEST_F(BufferTableTest, AReportForgivesWhatItsQueueOrItsErrorPoisoned) {
  Allocation& first = Insert({1, 1})->allocation();
  Allocation& second = Insert({2, 1})->allocation();
  first.written = second.written = true;
  table_.PoisonSkipped(first, {1, 0});
  table_.PoisonSkipped(second, {2, 5});
  table_.ForgiveInPlace({3, 4});
  EXPECT_EQ(first.poison, Poison::kInPlace) << "nobody has heard of error 1 yet";
  EXPECT_EQ(second.poison, Poison::kInPlace);
  table_.ForgiveInPlace({1, 4});
  EXPECT_EQ(first.poison, Poison::kNone) << "a reader on queue 4 got its error";
  EXPECT_EQ(second.poison, Poison::kInPlace);
  table_.ForgiveInPlace({3, 5});
  EXPECT_EQ(second.poison, Poison::kNone);
}

TEST_F(BufferTableTest, TheTablesOfAUserAreLimitedTogetherAndGiveBackWhatTheyTook) {
  auto other = std::make_unique<BufferTable>(space_, kUser);
  ASSERT_NE(Insert(*other, {1, 1}), nullptr);
  uint64_t taken = 0;
  while (space_.Take(kUser, 1).ok()) ++taken;
  EXPECT_GT(taken, TableSpace::kMaxPerTenant / 2);
  const absl::Status status = table_.Admit({1, 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(Insert(*other, {2, 1}), nullptr) << "in the room that it has";
  BufferTable of_another(space_, Tenant{kUser.uid + 1});
  EXPECT_NE(Insert(of_another, {1, 1}), nullptr);
  other.reset();
  EXPECT_NE(Insert({1, 1}), nullptr);
}

}  // namespace
}  // namespace xpud::handles
