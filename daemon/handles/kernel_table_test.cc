#include "daemon/handles/kernel_table.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/loops/codec.h"
#include "proto/loops/testing/builder.h"

namespace xpud::handles {
namespace {

using ::testing::HasSubstr;

// A kernel of many bytes: constants that are all stored.
std::string LargeKernel() {
  loops::testing::BodyBuilder b;
  const uint32_t i = b.Dimension(b.Size(0));
  uint32_t sum = b.Load(0, i);
  while (b.body.statements.size() + 3 < loops::kMaxStatements) {
    const uint32_t term = b.Real(static_cast<double>(b.body.statements.size()) + 0.1);
    sum = b.Call(loops::Function::add, loops::DType::kFloat32, sum, term);
  }
  b.Store(1, i, sum);
  return loops::Encode({.operands = {{loops::DType::kFloat32, loops::Role::kRead},
                                     {loops::DType::kFloat32, loops::Role::kWritten}},
                        .sizes = 1,
                        .bodies = {b.body}});
}

TEST(KernelTableTest, AnIdIsFreeOrInUse) {
  KernelTable table;
  EXPECT_FALSE(table.Admit(0).ok());
  EXPECT_FALSE(table.Admit(wire::kMaxKernels + 1).ok());
  EXPECT_EQ(table.Find(7), nullptr);
  EXPECT_FALSE(table.Forget(7).ok());
  const std::string bytes = loops::Encode(loops::testing::Softmax());
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(table.Admit(7).ok());
    const KernelTable::Kernel& kernel = table.Define(7, bytes, "softmax");
    EXPECT_TRUE(kernel.refusal.ok()) << kernel.refusal;
    EXPECT_EQ(table.Find(7), &kernel);
    EXPECT_FALSE(table.Admit(7).ok());
    EXPECT_EQ(table.Find(6), nullptr);
    EXPECT_TRUE(table.Forget(7).ok());
    EXPECT_EQ(table.Find(7), nullptr);
  }
  for (const int64_t id : {int64_t{0}, int64_t{-1}, INT64_MIN, INT64_MAX, (int64_t{1} << 32) + 7})
    EXPECT_EQ(table.Find(id), nullptr) << id;
}

TEST(KernelTableTest, ARefusedDefinitionKeepsItsIdAndReason) {
  KernelTable table;
  loops::Kernel kernel = loops::testing::Softmax();
  kernel.bodies[0].statements[0].operand = 9;
  for (const auto& [bytes, reason] :
       {std::pair(loops::Encode(kernel), "statement 0"), std::pair(std::string("\x01nonsense"), "")}) {
    ASSERT_TRUE(table.Admit(1).ok());
    EXPECT_THAT(table.Define(1, bytes, "bad\n").refusal.message(), HasSubstr(reason));
    ASSERT_NE(table.Find(1), nullptr);
    EXPECT_EQ(table.Find(1)->calls, nullptr);
    EXPECT_EQ(table.Find(1)->named.name, "bad?");
    EXPECT_FALSE(table.Admit(1).ok());
    EXPECT_TRUE(table.Forget(1).ok());
  }
}

TEST(KernelTableTest, DefinitionsAreLimitedByBytesAndForgottenOnesMakeRoom) {
  KernelTable table;
  const std::string bytes = LargeKernel();
  ASSERT_GT(bytes.size(), size_t{16} << 10);
  ASSERT_LT(bytes.size(), loops::kMaxKernelBytes);
  const auto fit = static_cast<uint32_t>(KernelTable::kMaxBytes / bytes.size());
  ASSERT_LT(fit, wire::kMaxKernels);
  for (uint32_t id = 1; id <= fit; ++id) ASSERT_TRUE(table.Define(id, bytes, "large").refusal.ok());
  const absl::Status beyond = table.Define(fit + 1, bytes, "large").refusal;
  EXPECT_EQ(beyond.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(beyond.message(), HasSubstr("a session may define 16777216 bytes"));
  EXPECT_TRUE(table.Forget(fit + 1).ok());
  EXPECT_TRUE(table.Forget(1).ok());
  EXPECT_TRUE(table.Define(1, bytes, "large").refusal.ok());
}

}  // namespace
}  // namespace xpud::handles
