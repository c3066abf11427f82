#include "proto/ops/invalid_index.h"

#include <gtest/gtest.h>

namespace xpud::ops {
namespace {

TEST(InvalidIndexTest, NamesTheIndexAndItsDimension) {
  for (const int64_t index : {int64_t{7}, int64_t{-9}, int64_t{1} << 40, -(int64_t{1} << 40)}) {
    const std::string number = std::to_string(index);
    EXPECT_EQ(DescribeInvalidIndex(InvalidIndexBase(0) + index, "f(x)"),
              "index " + number + " is out of range for dimension 0 in f(x)");
    EXPECT_EQ(DescribeInvalidIndex(InvalidIndexBase(7) + index, "f(x)"),
              "index " + number + " is out of range for dimension 7 in f(x)");
    EXPECT_EQ(DescribeInvalidIndex(InvalidIndexBase(kNoDimension) + index, "f(x)"),
              "index " + number + " is out of range in f(x)");
    EXPECT_EQ(DescribeInvalidIndex(index, "f(x)"), "index " + number + " is out of range in f(x)");
  }
}

TEST(InvalidIndexTest, NamesTheCheckThatFailed) {
  const std::string text = DescribeInvalidIndex(InvalidIndexBase(kFailedCheck) + 3, "f(x)");
  EXPECT_EQ(text, "check 3 failed in f(x)");
  EXPECT_EQ(FailedCheckOf(text), 3);
  EXPECT_EQ(FailedCheckOf("index 3 is out of range in f(x)"), std::nullopt);
  EXPECT_EQ(FailedCheckOf("check that failed in f(x)"), std::nullopt);
}

}  // namespace
}  // namespace xpud::ops
