#include "proto/loops/bounds.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "proto/loops/call_check.h"
#include "proto/loops/check.h"
#include "proto/loops/testing/builder.h"
#include "proto/loops/testing/evaluate.h"
#include "proto/loops/text.h"

namespace xpud::loops {
namespace {

using testing::BodyBuilder;

Interval Known(int64_t low, int64_t high) { return {true, low, high}; }

TEST(Bounds, OfSumsAndProducts) {
  BodyBuilder b;
  const uint32_t i = b.Dimension(b.Size(0)), j = b.Dimension(b.Number(5));
  const uint32_t flat = b.Add(b.Mul(i, b.Number(5)), j),
                 mirrored = b.Add(b.Number(4), b.Mul(j, b.Number(-1)));
  const uint32_t none = b.Add(flat, b.Mul(flat, b.Number(-1))), square = b.Mul(i, i);
  const int64_t sizes[] = {7};
  const Bounds bounds(b.body, sizes);
  EXPECT_EQ(bounds.Of(flat), Known(0, 34));
  EXPECT_EQ(bounds.Of(mirrored), Known(0, 4));
  EXPECT_EQ(bounds.Of(none), Known(0, 0)) << "equal atoms cancel";
  EXPECT_EQ(bounds.Of(square), Known(0, 36));
}

TEST(Bounds, WhatWasTakenApartIsJoined) {
  BodyBuilder b;
  const uint32_t i = b.Dimension(b.Number(100));
  const uint32_t two = b.Add(b.Mul(b.Div(i, 64), b.Number(64)), b.Mod(i, 64));
  const uint32_t low = b.Add(b.Mod(i, 5), b.Mul(b.Mod(b.Div(i, 5), 4), b.Number(5)));
  const uint32_t three = b.Add(low, b.Mul(b.Div(i, 20), b.Number(20)));
  const uint32_t shifted =
      b.Add(b.Mul(b.Div(b.Add(i, b.Number(3)), 8), b.Number(8)), b.Mod(b.Add(i, b.Number(3)), 8));
  const uint32_t quarters = b.Div(b.Div(i, 5), 20),
                 even = b.Div(b.Add(b.Mul(i, b.Number(4)), b.Mod(i, 3)), 4);
  const Bounds bounds(b.body, {});
  EXPECT_EQ(bounds.Of(two), Known(0, 99));
  EXPECT_EQ(bounds.Of(low), Known(0, 19));
  EXPECT_EQ(bounds.Of(three), Known(0, 99));
  EXPECT_EQ(bounds.Of(shifted), Known(3, 102));
  EXPECT_EQ(bounds.Of(quarters), Known(0, 0));
  EXPECT_EQ(bounds.Of(even), Known(0, 99));
}

TEST(Bounds, TooLargeNumbersAreUnknown) {
  BodyBuilder b;
  const int64_t large = std::numeric_limits<int64_t>::max();
  const uint32_t i = b.Dimension(b.Size(0));
  const uint32_t twice = b.Mul(i, b.Number(large)), one_more = b.Add(b.Number(large), b.Number(1)),
                 divided = b.Div(twice, 3),
                 lowest = b.Node(IndexOp::kAbs, b.Number(std::numeric_limits<int64_t>::min()));
  const uint32_t by_size = b.Node(IndexOp::kFloorDiv, i, b.Size(1));
  const int64_t sizes[] = {3, 0};
  const Bounds bounds(b.body, sizes);
  for (const uint32_t each : {twice, one_more, divided, lowest}) EXPECT_FALSE(bounds.Of(each).known) << each;
  EXPECT_FALSE(bounds.Of(by_size).known) << "divided by 0";
}

// Each value of each node is within its bounds, and where all are inside of an operand, most are proved to
// be.
TEST(Bounds, HoldForEveryPosition) {
  testing::RandomKernels random(3);
  int inside = 0, proved = 0, strides = 0;
  for (int k = 0; k < 3000; ++k) {
    const Kernel kernel = random.Next();
    const Body& body = kernel.bodies[0];
    const int64_t sizes[] = {1 + random.Below(6), 1 + random.Below(6)}, elements[] = {1 + random.Below(60)};
    const Bounds bounds(body, sizes);
    const absl::StatusOr<KernelInfo> info = CheckKernel(kernel);
    ASSERT_TRUE(info.ok()) << info.status();
    const absl::StatusOr<CallInfo> call = CheckCall(kernel, *info, sizes, elements);
    ASSERT_TRUE(call.ok()) << call.status();
    for (uint32_t node = 0; node < body.indices.size(); ++node) {
      const Interval interval = bounds.Of(node);
      bool all_inside = true;
      std::vector<int64_t> at(body.extents.size());
      const auto indirect = [](uint32_t) { return int64_t{0}; };
      do {
        const int64_t value = testing::Evaluate(body, node, {at, sizes, indirect});
        if (interval.known) {
          ASSERT_GE(value, interval.low);
          ASSERT_LE(value, interval.high);
        }
        all_inside &= value >= 0 && value < elements[0];
        for (uint32_t d = 0; d < at.size(); ++d) {
          const std::optional<int64_t> stride = bounds.Stride(node, d);
          if (!stride) continue;
          for (const int64_t factor : {2, 4})
            if (at[d] % factor == 0 && bounds.IsMultiple(node, d, factor)) {
              ASSERT_EQ(value % factor, 0);
            }
          std::vector<int64_t> next = at;
          if (++next[d] >= call->bodies[0].extents[d]) continue;
          ASSERT_EQ(testing::Evaluate(body, node, {next, sizes, indirect}), value + *stride);
          ++strides;
        }
      } while (testing::Next(at, call->bodies[0].extents));
      const bool guarded = call->bodies[0].guarded[2 * node + 1];  // its store
      ASSERT_TRUE(guarded || all_inside) << "node " << node << " is outside and not guarded";
      inside += all_inside;
      proved += !guarded;
    }
  }
  EXPECT_GT(proved, inside * 9 / 10) << "of " << inside;
  EXPECT_GT(strides, 1000);
}

// What runs under a mask is inside of its operand wherever the mask holds, or guarded.
TEST(Bounds, MasksCount) {
  testing::RandomKernels random(4);
  int inside = 0, proved = 0, without_masks = 0;
  for (int k = 0; k < 6000; ++k) {
    const Kernel kernel = random.NextMasked();
    const Body& body = kernel.bodies[0];
    const int64_t sizes[] = {1 + random.Below(6), 1 + random.Below(6)},
                  elements[] = {1000, 1 + random.Below(16)};
    const absl::StatusOr<KernelInfo> info = CheckKernel(kernel);
    ASSERT_TRUE(info.ok()) << info.status();
    const absl::StatusOr<CallInfo> call = CheckCall(kernel, *info, sizes, elements);
    ASSERT_TRUE(call.ok()) << call.status();
    const Bounds bounds(body, sizes);
    for (size_t i = 0; i < body.statements.size(); ++i) {
      const Statement& load = body.statements[i];
      if (load.kind != StatementKind::kLoad) continue;
      bool runs = false, all_inside = true;
      std::vector<int64_t> at(body.extents.size());
      do {
        std::vector<int64_t> values(i);
        const auto indirect = [](uint32_t) { return int64_t{0}; };
        for (size_t s = 0; s < i; ++s)
          values[s] = testing::ValueOf(body, body.statements[s], values, {at, sizes, indirect});
        if (values[body.statements[i - 1].values[0]] == 0) continue;
        runs = true;
        const int64_t index = testing::Evaluate(body, load.index, {at, sizes, indirect});
        all_inside &= index >= 0 && index < elements[1];
      } while (testing::Next(at, call->bodies[0].extents));
      const bool guarded = call->bodies[0].guarded[i];
      ASSERT_TRUE(guarded || all_inside) << "statement " << i << " is outside and not guarded\n"
                                         << TextOf(kernel);
      const Interval always = bounds.Of(load.index);
      inside += runs && all_inside;
      proved += runs && !guarded;
      without_masks += runs && always.known && always.low >= 0 && always.high < elements[1];
    }
  }
  EXPECT_GT(proved - without_masks, (inside - without_masks) / 3) << "of " << inside << ", " << without_masks;
}

TEST(CallCheck, SizesAndElementsDecide) {
  const Kernel kernel = testing::Softmax();
  const absl::StatusOr<KernelInfo> info = CheckKernel(kernel);
  ASSERT_TRUE(info.ok()) << info.status();
  const auto check = [&](std::vector<int64_t> sizes, std::vector<int64_t> elements) {
    return CheckCall(kernel, *info, sizes, elements);
  };
  const absl::StatusOr<CallInfo> call = check({3, 40}, {120, 119});
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_FALSE(call->bodies[0].guarded[0]);
  EXPECT_TRUE(call->bodies[0].guarded[6]) << "an element is missing";
  EXPECT_GT(call->operations, 120 * 10);
  EXPECT_TRUE(check({0, 40}, {0, 0}).ok());
  EXPECT_EQ(check({-1, 40}, {1, 1}).status().message(), "body 0: dimension 0 has -1 positions");
  EXPECT_EQ(check({int64_t{1} << 40, 1 << 20}, {1, 1}).status().message(),
            "body 0: more than 281474976710656 positions");
  EXPECT_FALSE(check({3}, {1, 1}).ok());
}

// What is outside of the reduced dimensions runs, however few positions they have.
TEST(CallCheck, AnEmptyReducedDimensionExemptsNothingOutsideOfIt) {
  BodyBuilder b;
  const uint32_t i = b.Dimension(b.Number(4)), j = b.Dimension(b.Size(0), /*reduced=*/true);
  const uint32_t sum = b.Reduce(Reduction::kSum, DType::kInt64, b.IndexValue(j));
  b.Store(0, b.Add(b.Node(IndexOp::kFloorDiv, i, b.Size(1)), b.Number(1'000)), sum);
  const Kernel kernel = {.operands = {{DType::kInt64, Role::kUpdated}}, .sizes = 2, .bodies = {b.body}};
  const auto info = CheckKernel(kernel);
  ASSERT_TRUE(info.ok()) << info.status();
  const int64_t elements[] = {4};
  const auto call = CheckCall(kernel, *info, std::vector<int64_t>{0, 1}, elements);
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_TRUE(call->bodies[0].guarded.back());
  EXPECT_FALSE(CheckCall(kernel, *info, std::vector<int64_t>{0, 0}, elements).ok()) << "a division by 0";
}

TEST(CallCheck, AnEmptyDimensionHidesNoOverflowOfTheOthers) {
  BodyBuilder b;
  const uint32_t i = b.Dimension(b.Size(0)), j = b.Dimension(b.Size(0)),
                 k = b.Dimension(b.Size(1), /*reduced=*/true);
  b.Store(0, b.Node(IndexOp::kMin, i, j), b.Reduce(Reduction::kSum, DType::kInt64, b.IndexValue(k)));
  const Kernel kernel = {.operands = {{DType::kInt64, Role::kUpdated}}, .sizes = 2, .bodies = {b.body}};
  const auto info = CheckKernel(kernel);
  ASSERT_TRUE(info.ok()) << info.status();
  const int64_t elements[] = {1};
  EXPECT_TRUE(CheckCall(kernel, *info, std::vector<int64_t>{8, 0}, elements).ok());
  EXPECT_FALSE(CheckCall(kernel, *info, std::vector<int64_t>{int64_t{1} << 40, 0}, elements).ok());
}

TEST(CallCheck, DivisorsAreAtLeastOne) {
  BodyBuilder b;
  const uint32_t i = b.Dimension(b.Size(0));
  b.Store(0, b.Node(IndexOp::kFloorDiv, i, b.Size(1)), b.Real(0));
  const Kernel kernel = {.operands = {{DType::kFloat32, Role::kWritten}}, .sizes = 2, .bodies = {b.body}};
  const absl::StatusOr<KernelInfo> info = CheckKernel(kernel);
  ASSERT_TRUE(info.ok()) << info.status();
  const int64_t elements[] = {4}, two[] = {8, 2}, none[] = {8, 0}, empty[] = {0, 0};
  EXPECT_TRUE(CheckCall(kernel, *info, two, elements).ok());
  EXPECT_TRUE(CheckCall(kernel, *info, empty, elements).ok()) << "nothing is divided";
  EXPECT_EQ(CheckCall(kernel, *info, none, elements).status().message(),
            "body 0: index node 3 divides by 0, at least 1 is needed");
}

TEST(CallCheck, IndirectIndicesAreInsideTheirBound) {
  const Kernel kernel = testing::MaskedGather();
  const absl::StatusOr<KernelInfo> info = CheckKernel(kernel);
  ASSERT_TRUE(info.ok()) << info.status();
  const int64_t sizes[] = {10, 50};
  for (const int64_t table : {49, 50}) {
    const int64_t elements[] = {table, 10, 10, 10};
    const absl::StatusOr<CallInfo> call = CheckCall(kernel, *info, sizes, elements);
    ASSERT_TRUE(call.ok()) << call.status();
    EXPECT_EQ(call->bodies[0].guarded[5], table < 50) << table;
  }
}

}  // namespace
}  // namespace xpud::loops
