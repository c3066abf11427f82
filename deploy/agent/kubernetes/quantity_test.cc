#include "deploy/agent/kubernetes/quantity.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace xpud::agent::kubernetes {
namespace {

TEST(Quantity, WholeNumbersAreReadExactly) {
  const std::vector<std::pair<const char*, uint64_t>> cases = {
      {"0", 0},
      {"30", 30},
      {"+30", 30},
      {"00030", 30},
      {"30.0", 30},
      {"30.", 30},
      {".5k", 500},
      {"0.5Ki", 512},
      {"4Gi", uint64_t{4} << 30},
      {"1.5Gi", uint64_t{3} << 29},
      {"2G", 2'000'000'000},
      {"1e3", 1000},
      {"1E3", 1000},
      {"1e+3", 1000},
      {"25000e-3", 25},
      {"1E", 1'000'000'000'000'000'000},
      {"3000m", 3},
      {"7000000u", 7},
      {"9000000000n", 9},
      {"7Ei", uint64_t{7} << 60},
      {"9223372036854775807", 9223372036854775807},
      {"0e99999999999999999999", 0},
      {"1000000000000000000000000000n", 1'000'000'000'000'000'000},
      {"100000000000000000000000000000e-27", 100}};
  for (const auto& [text, value] : cases) {
    const auto read = WholeQuantity(text);
    ASSERT_TRUE(read.ok()) << text << ": " << read.status();
    EXPECT_EQ(*read, value) << text;
  }
}

TEST(Quantity, EverythingElseIsRefusedWithTheReason) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"", "is no quantity"},
      {".", "is no quantity"},
      {"Gi", "is no quantity"},
      {"lots", "is no quantity"},
      {"4GiB", "is no quantity"},
      {"4gi", "is no quantity"},
      {"4 Gi", "is no quantity"},
      {" 4", "is no quantity"},
      {"4K", "is no quantity"},
      {"1e", "is no quantity"},
      {"1e+", "is no quantity"},
      {"1e3k", "is no quantity"},
      {"1.2.3", "is no quantity"},
      {"++1", "is no quantity"},
      {"0x10", "is no quantity"},
      {"-1", "is negative"},
      {"1500m", "is not a whole number"},
      {"0.3Gi", "is not a whole number"},
      {"1n", "is not a whole number"},
      {"1e-99999999999999999999", "is not a whole number"},
      {"8Ei", "is above"},
      {"9223372036854775808", "is above"},
      {"99999999999999999999", "is above"},
      {"1e19", "is above"},
      {"1e99999999999999999999", "is above"},
      {"123456789012345678901", "more than 20 digits"},
      {"1\n", "is no quantity"},
      {"10000000000000000000000000000000000000000000000000000000000000000", "it may have 64"}};
  for (const auto& [text, reason] : cases) {
    const auto read = WholeQuantity(text);
    ASSERT_FALSE(read.ok()) << text << " is " << *read;
    EXPECT_NE(read.status().message().find(reason), std::string::npos) << read.status();
  }
}

TEST(Quantity, IsWrittenAsKubernetesWritesIt) {
  EXPECT_EQ(BinaryQuantity(0), "0");
  EXPECT_EQ(BinaryQuantity(1023), "1023");
  EXPECT_EQ(BinaryQuantity(uint64_t{4} << 30), "4Gi");
  EXPECT_EQ(BinaryQuantity(uint64_t{1537} << 20), "1537Mi");
  EXPECT_EQ(BinaryQuantity(uint64_t{1} << 63), "8Ei");
  EXPECT_EQ(DecimalQuantity(0), "0");
  EXPECT_EQ(DecimalQuantity(100), "100");
  EXPECT_EQ(DecimalQuantity(1024), "1024");
  EXPECT_EQ(DecimalQuantity(1000), "1k");
  EXPECT_EQ(DecimalQuantity(3'000'000), "3M");
  EXPECT_EQ(DecimalQuantity(10'000'000'000'000'000'000U), "10E");
}

}  // namespace
}  // namespace xpud::agent::kubernetes
