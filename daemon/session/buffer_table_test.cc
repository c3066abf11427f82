#include "daemon/session/buffer_table.h"

#include "gtest/gtest.h"

namespace xpud::session {
namespace {

TEST(BufferTable, AHandleFindsItsBufferUntilItIsErased) {
  BufferTable table;
  Buffer* buffer = table.Insert({1, 1});
  ASSERT_NE(buffer, nullptr);
  EXPECT_EQ(table.Find({1, 1}), buffer);
  table.Erase(*buffer);
  EXPECT_EQ(table.Find({1, 1}), nullptr);
  EXPECT_EQ(table.live(), 0u);
}

TEST(BufferTable, StaleNullAndInventedHandlesAreNotFound) {
  BufferTable table;
  table.Erase(*table.Insert({1, 1}));
  table.Insert({1, 2});
  EXPECT_EQ(table.Find({1, 1}), nullptr);
  EXPECT_EQ(table.Find({1, 3}), nullptr);
  EXPECT_EQ(table.Find({0, 0}), nullptr);
  EXPECT_EQ(table.Find({1, 0}), nullptr);
  EXPECT_EQ(table.Find({77, 1}), nullptr);
}

TEST(BufferTable, IdsAreDenseAndGenerationsGrow) {
  BufferTable table;
  EXPECT_EQ(table.Insert({0, 1}), nullptr) << "id 0 is null";
  EXPECT_EQ(table.Insert({2, 1}), nullptr) << "id 1 was never made";
  EXPECT_EQ(table.Insert({0xffffffffu, 1}), nullptr);
  Buffer* buffer = table.Insert({1, 5});
  ASSERT_NE(buffer, nullptr);
  EXPECT_EQ(table.Insert({1, 6}), nullptr) << "in use";
  table.Erase(*buffer);
  EXPECT_EQ(table.Insert({1, 5}), nullptr) << "a generation is never used again";
  EXPECT_NE(table.Insert({1, 6}), nullptr);
}

}  // namespace
}  // namespace xpud::session
