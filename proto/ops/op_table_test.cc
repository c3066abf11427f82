#include "proto/ops/op_table.h"

#include <cmath>
#include <limits>
#include <set>

#include "gtest/gtest.h"
#include "proto/ops/family.h"

namespace xpud::ops {
namespace {

TEST(OpTable, NumbersAreUnique) {
  std::set<int> seen;
  for (const Row& row : kRows) EXPECT_TRUE(seen.insert(row.number).second) << row.number << " " << row.aten;
}

TEST(OpTable, EveryRowIsFoundByNumberAndByEachName) {
  for (const Row& row : kRows) {
    EXPECT_EQ(FindRow(row.number), &row);
    EXPECT_EQ(FindRow(row.aten.substr(0, row.aten.find('|'))), &row)
        << "another row has the name " << row.aten;
  }
}

TEST(OpTable, UnknownNumbersAndNamesAreNotFound) {
  EXPECT_EQ(FindRow(uint16_t{0}), nullptr);
  EXPECT_EQ(FindRow(uint16_t{65535}), nullptr);
  EXPECT_EQ(FindRow("add"), nullptr);
}

TEST(OpTable, RowsStayWithinTheWireLimits) {
  for (const Row& row : kRows) {
    EXPECT_LE(row.inputs, kMaxInputs) << row.aten;
    if (DescriptorOf(row).lists == 0) EXPECT_LE(row.outputs, kMaxOutputs) << row.aten;
    EXPECT_LE(row.optional, row.inputs) << row.aten;
  }
}

TEST(Number, RealsBeyondTheIntegersBecomeTheNearestOne) {
  EXPECT_EQ(Number::Real(-3.9).AsInteger(), -3);
  EXPECT_EQ(Number::Real(1e300).AsInteger(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(Number::Real(0x1p63).AsInteger(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(Number::Real(-1e300).AsInteger(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(Number::Real(-0x1p63).AsInteger(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(Number::Real(std::nan("")).AsInteger(), std::numeric_limits<int64_t>::min());
}

}  // namespace
}  // namespace xpud::ops
