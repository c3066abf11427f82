#include "proto/loops/check.h"

#include <functional>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "proto/loops/testing/builder.h"

namespace xpud::loops {
namespace {

using testing::BodyBuilder;

TEST(Check, SaysWhatIsInner) {
  const absl::StatusOr<KernelInfo> info = CheckKernel(testing::Softmax());
  ASSERT_TRUE(info.ok()) << info.status();
  const bool expected[] = {true, false, true, true, false, true, true};
  for (size_t i = 0; i < std::size(expected); ++i)
    EXPECT_EQ(info->bodies[0].statements[i].is_inner, expected[i]) << i;
  const absl::StatusOr<KernelInfo> masked = CheckKernel(testing::MaskedGather());
  ASSERT_TRUE(masked.ok()) << masked.status();
  EXPECT_EQ(masked->bodies[0].statements[5].block, 2u);
  EXPECT_EQ(masked->bodies[0].statements[6].block, kNone);
}

// A kernel that is changed in one place, and what is said of it.
struct Fault {
  std::string message;
  std::function<void(Kernel&)> change;
};

void Expect(const Kernel& kernel, const std::vector<Fault>& faults) {
  ASSERT_TRUE(CheckKernel(kernel).ok()) << CheckKernel(kernel).status();
  for (const Fault& fault : faults) {
    Kernel changed = kernel;
    fault.change(changed);
    const absl::Status status = CheckKernel(changed).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << fault.message;
    EXPECT_TRUE(absl::StrContains(status.message(), fault.message))
        << status.message() << "\nexpected: " << fault.message;
  }
}

TEST(Check, NamesTheFaultOfASoftmax) {
  const auto statement = [](size_t i, auto change) {
    return [=](Kernel& kernel) { change(kernel.bodies[0].statements[i]); };
  };
  using S = Statement&;
  Expect(testing::Softmax(),
         {
             {"body 0, statement 0 (load): operand 7 does not exist; there are 2",
              statement(0, [](S s) { s.operand = 7; })},
             {"statement 0 (load): operand 1 is only written", statement(0, [](S s) { s.operand = 1; })},
             {"statement 0 (load): the index is index node 99; there are 6",
              statement(0, [](S s) { s.index = 99; })},
             {"statement 1 (reduce): any does not take float32",
              statement(1, [](S s) { s.reduction = Reduction::kAny; })},
             {"statement 1 (reduce): sum does not take bool",
              statement(1, [](S s) { s.reduction = Reduction::kSum, s.type = DType::kBool; })},
             {"statement 2 (call): value 2 is none of an earlier statement",
              statement(2, [](S s) { s.values[0] = 2; })},
             {"statement 2 (call): value 0 is float32, float64 is needed",
              statement(2, [](S s) { s.type = DType::kFloat64; })},
             {"statement 2 (call): gcd does not take float32",
              statement(2, [](S s) { s.function = Function::gcd; })},
             {"statement 6 (store): operand 0 is only read", statement(6, [](S s) { s.operand = 0; })},
             {"the value of statement 4 (reduce) is not used", statement(5, [](S s) { s.values[1] = 3; })},
             {"operand 0 of a loop kernel is in, but it is not used", [](Kernel& k) { k.bodies[0] = {}; }},
             {"operand 2 of a loop kernel is scalar, but it is not used",
              [](Kernel& k) { k.operands.push_back({DType::kFloat32, Role::kScalar}); }},
             {"index node 4 uses node 9, only earlier ones", [](Kernel& k) { k.bodies[0].indices[4].a = 9; }},
             {"index node 5 repeats an earlier one",
              [](Kernel& k) { k.bodies[0].indices[5] = k.bodies[0].indices[4]; }},
             {"index node 6 is not used",
              [](Kernel& k) { k.bodies[0].indices.push_back({IndexOp::kConstant, 0, 0, 5}); }},
             {"is size 2; there are 2", [](Kernel& k) { k.bodies[0].indices[0].a = 2; }},
             {"the iterator of dimension 2; there are 2", [](Kernel& k) { k.bodies[0].indices[2].a = 2; }},
             {"an extent is index node 2, an expression of constants and sizes",
              [](Kernel& k) { k.bodies[0].extents[1] = 2; }},
             {"the body has no reduced dimension", [](Kernel& k) { k.bodies[0].outer = 2; }},
             {"has no body", [](Kernel& k) { k.bodies.clear(); }},
             {"a loop kernel has 132 arguments", [](Kernel& k) { k.sizes = 128; }},
         });
}

TEST(Check, NamesTheFaultOfAMask) {
  const auto statement = [](size_t i, auto change) {
    return [=](Kernel& kernel) { change(kernel.bodies[0].statements[i]); };
  };
  using S = Statement&;
  Expect(
      testing::MaskedGather(),
      {
          {"statement 2 (mask): value 1 is float32, bool is needed",
           statement(2, [](S s) { s.values[0] = 1; })},
          {"statement 2 (mask): its block has 6 statements", statement(2, [](S s) { s.integer = 6; })},
          {"statement 2 (mask): its block has 0 statements", statement(2, [](S s) { s.integer = 0; })},
          {"statement 5 (load): the block of mask 2 ends here", statement(2, [](S s) { s.integer = 2; })},
          {"statement 6 (unmask): no block of mask 1 ends here", statement(6, [](S s) { s.values[0] = 1; })},
          {"statement 7 (store): value 5 was made under mask 2 alone",
           statement(7, [](S s) { s.values[0] = 5; })},
          {"statement 4 (indirect): an index is bool, an integer is needed",
           [](Kernel& k) { k.operands[1].type = DType::kBool; }},
          {"uses statement 3 as an index, which is no 'indirect'",
           [](Kernel& k) { k.bodies[0].indices.back().a = 3; }},
          {"statement 3 (load): the index uses statement 4, which is not earlier",
           statement(3, [](S s) { s.index = 3; })},
          {"it may not run under a mask",
           statement(3, [](S s) { s = {.kind = StatementKind::kAssert, .values = {0, kNone, kNone}}; })},
      });
}

TEST(Check, PointsMayRunInAnyOrder) {
  const auto kernel = [](int64_t shift) {
    BodyBuilder b;
    const uint32_t i = b.Dimension(b.Size(0));
    b.Store(0, shift == 0 ? i : b.Add(i, b.Number(shift)), b.Load(0, i));
    return Kernel{.operands = {{DType::kFloat32, Role::kUpdated}}, .sizes = 1, .bodies = {b.body}};
  };
  EXPECT_TRUE(CheckKernel(kernel(0)).ok());
  EXPECT_EQ(CheckKernel(kernel(1)).status().message(),
            "body 0: operand 0 is read and written at different indices; points run in any order");
  // What a body has written, the next one may read anywhere.
  Kernel two = kernel(0);
  two.operands.push_back({DType::kFloat32, Role::kWritten});
  BodyBuilder b;
  const uint32_t i = b.Dimension(b.Size(0));
  b.Store(1, i, b.Load(0, b.Add(i, b.Number(1))));
  two.bodies.push_back(b.body);
  EXPECT_TRUE(CheckKernel(two).ok()) << CheckKernel(two).status();
}

TEST(Check, DivisorsAreConstantsAndSizesOfAtLeastOne) {
  const auto kernel = [](bool by_iterator, int64_t divisor) {
    BodyBuilder b;
    const uint32_t i = b.Dimension(b.Size(0));
    b.Store(0, i, b.IndexValue(b.Node(IndexOp::kMod, i, by_iterator ? i : b.Number(divisor))));
    return Kernel{.operands = {{DType::kInt64, Role::kWritten}}, .sizes = 1, .bodies = {b.body}};
  };
  EXPECT_TRUE(CheckKernel(kernel(false, 1)).ok());
  EXPECT_TRUE(absl::StrContains(CheckKernel(kernel(false, 0)).status().message(),
                                "divides by 0, at least 1 is needed"));
  EXPECT_TRUE(absl::StrContains(CheckKernel(kernel(true, 0)).status().message(),
                                "no expression of constants and sizes"));
}

TEST(Check, ReductionsWithSeveralValues) {
  BodyBuilder b;
  const uint32_t columns = b.Number(9), i = b.Dimension(b.Size(0)),
                 j = b.Dimension(columns, /*reduced=*/true);
  const uint32_t x = b.Load(0, b.Add(b.Mul(i, columns), j));
  const uint32_t largest = b.Reduce(Reduction::kArgMax, DType::kFloat32, x, b.IndexValue(j));
  const uint32_t where =
      b.Make({.kind = StatementKind::kPart, .values = {largest, kNone, kNone}, .integer = 1});
  b.Store(1, i, where);
  const Kernel kernel = {.operands = {{DType::kFloat32, Role::kRead}, {DType::kInt64, Role::kWritten}},
                         .sizes = 1,
                         .bodies = {b.body}};
  Expect(kernel,
         {{"value 2 of statement 2, which has 2", [](Kernel& k) { k.bodies[0].statements[3].integer = 2; }},
          {"value 1 of statement 0, which has 1", [](Kernel& k) { k.bodies[0].statements[3].values[0] = 0; }},
          {"there is no scan of welford", [](Kernel& k) {
             k.bodies[0].statements[2].kind = StatementKind::kScan;
             k.bodies[0].statements[2].reduction = Reduction::kWelford;
           }}});
}

}  // namespace
}  // namespace xpud::loops
