#include "proto/loops/definition.h"

#include <array>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "proto/loops/codec.h"
#include "proto/loops/testing/builder.h"
#include "proto/ops/op_table.h"

namespace xpud::loops {
namespace {

// out = a + b, of size 0 elements.
std::shared_ptr<const Definition> Added() {
  testing::BodyBuilder b;
  const uint32_t i = b.Dimension(b.Size(0));
  b.Store(2, i, b.Call(Function::add, DType::kFloat32, b.Load(0, i), b.Load(1, i)));
  const Kernel kernel = {.operands = {{DType::kFloat32, Role::kRead},
                                      {DType::kFloat32, Role::kRead},
                                      {DType::kFloat32, Role::kWritten}},
                         .sizes = 1,
                         .bodies = {b.body}};
  return *Definition::Create(Encode(kernel), "added");
}

class CallCacheTest : public ::testing::Test {
 protected:
  struct Given {
    int64_t elements;
    DType type = DType::kFloat32;
  };
  absl::StatusOr<const DefinedCall*> Find(Given out, Given a, Given b, int64_t size) {
    const auto operand = [](const Given& given) {
      ops::Operand made;
      made.dtype = given.type;
      made.present = true;
      made.rank = 1;
      made.sizes[0] = given.elements;
      made.strides[0] = 1;
      return made;
    };
    outputs_ = {operand(out)};
    inputs_ = {operand(a), operand(b)};
    attributes_ = {ops::Number::Integer(1), ops::Number::Integer(1), ops::Number::Integer(size)};
    ops::Call call;
    call.row = &ops::RowOf("xpud::loop");
    call.outputs = outputs_;
    call.inputs = inputs_;
    call.attributes = attributes_;
    return cache_.Find(call);
  }
  static bool IsGuarded(const DefinedCall& call) {
    for (const bool guarded : call.info.bodies[0].guarded)
      if (guarded) return true;
    return false;
  }

  std::vector<ops::Operand> outputs_, inputs_;
  std::vector<ops::Number> attributes_;
  CallCache cache_{Added()};
};

TEST_F(CallCacheTest, ACallOfTheSameSizesIsNotCheckedAgain) {
  const DefinedCall* const call = *Find({10}, {10}, {10}, 10);
  EXPECT_FALSE(IsGuarded(*call));
  call->plan = std::make_shared<int>(1);
  EXPECT_NE((*Find({10}, {10}, {10}, 10))->plan, nullptr);
  EXPECT_EQ((*Find({10}, {10}, {10}, 9))->plan, nullptr);
  EXPECT_TRUE(IsGuarded(**Find({10}, {9}, {10}, 10)));
}

TEST_F(CallCacheTest, ARefusedCallLeavesNothingThatALaterOneIsTakenFor) {
  ASSERT_FALSE(IsGuarded(**Find({10}, {10}, {10}, 10)));
  EXPECT_FALSE(Find({10}, {5}, {10, DType::kInt64}, 10).ok());
  EXPECT_TRUE(IsGuarded(**Find({10}, {5}, {10}, 10))) << "an operand has 5 elements, not 10";
  EXPECT_FALSE(Find({10}, {5}, {10}, -1).ok());
  EXPECT_TRUE(IsGuarded(**Find({10}, {5}, {10}, 10)));
}

TEST_F(CallCacheTest, SizesAndElementsAreACall) {
  const std::array<int64_t, 1> sizes = {10};
  const std::array<int64_t, 3> elements = {10, 10, 10}, fewer = {10, 5, 10};
  const DefinedCall* const call = *cache_.Find(sizes, elements);
  EXPECT_FALSE(IsGuarded(*call));
  call->plan = std::make_shared<int>(1);
  EXPECT_NE((*Find({10}, {10}, {10}, 10))->plan, nullptr) << "it is known";
  EXPECT_TRUE(IsGuarded(**cache_.Find(sizes, fewer)));
  EXPECT_FALSE(cache_.Find({}, elements).ok());
  EXPECT_FALSE(cache_.Find(sizes, std::span(elements).first(2)).ok());
  EXPECT_FALSE(IsGuarded(**Find({10}, {10}, {10}, 10)));
}

}  // namespace
}  // namespace xpud::loops
