// Compiled loop kernels against the reference that runs them statement by statement.
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/loop_call.h"
#include "kernels/testing/loop_reference.h"
#include "proto/loops/testing/builder.h"
#include "proto/loops/testing/chains.h"
#include "proto/loops/testing/random_computation.h"
#include "proto/loops/text.h"

namespace xpud::kernels {
namespace {

using loops::Function;
using loops::kNone;
using loops::Reduction;
using loops::Role;
using loops::StatementKind;
using loops::testing::BodyBuilder;
using ops::DType;

// What a kernel stores in the error word.
struct Reported {
  explicit Reported(uint64_t word)
      : error(static_cast<DeviceError>(word & 0xff)),
        index(static_cast<int64_t>(word << (64 - 8 - kLoopIndexBits)) >> (64 - kLoopIndexBits)),
        statement(word >> (8 + kLoopIndexBits)) {}
  DeviceError error;
  int64_t index;
  uint64_t statement;
};

class LoopTest : public DeviceTest {
 protected:
  // Runs the kernel here and by the reference, on copies of the operands, and compares them. Scalars are
  // tensors of one element. `tolerance`: of the largest value that appears, for what is not exact.
  void Check(const loops::Kernel& kernel, const std::vector<int64_t>& sizes,
             const std::vector<TestTensor*>& operands, double tolerance = 0) {
    SCOPED_TRACE(loops::TextOf(kernel));
    std::vector<TestTensor> expected;
    for (const TestTensor* const operand : operands) expected.push_back(*operand);
    std::vector<TestTensor*> copies;
    for (TestTensor& copy : expected) copies.push_back(&copy);
    const absl::StatusOr<loops::KernelInfo> info = loops::CheckKernel(kernel);
    ASSERT_TRUE(info.ok()) << info.status();
    LoopReference reference(kernel, *info);
    ASSERT_TRUE(reference.Run(sizes, copies).ok());
    ASSERT_TRUE(Run(kernel, sizes, operands).ok());
    ASSERT_EQ(error_word_ != 0, reference.failure().has_value()) << Reported(error_word_).statement;
    if (reference.failure()) return;  // elements may have been left out
    for (size_t o = 0; o < operands.size(); ++o) {
      ASSERT_TRUE(operands[o]->MarginsIntact()) << "operand " << o;
      for (int64_t i = 0; i < operands[o]->numel(); ++i) {
        const Exact found = operands[o]->At(i), wanted = expected[o].At(i);
        if (std::isnan(wanted) ? std::isnan(found) : found == wanted) continue;
        const Exact allowed = ops::IsFloating(operands[o]->dtype())
                                  ? static_cast<Exact>(tolerance) * std::max<Exact>(reference.magnitude(), 1)
                                  : 0;
        ASSERT_LE(std::fabs(found - wanted), allowed)
            << "operand " << o << ", element " << i << ": " << static_cast<double>(found) << ", not "
            << static_cast<double>(wanted);
      }
    }
  }

  absl::Status Run(const loops::Kernel& kernel, const std::vector<int64_t>& sizes,
                   const std::vector<TestTensor*>& operands) {
    const LoopCall call(kernel, sizes, operands);
    if (!call.refused().ok()) return call.refused();
    const absl::Status status = device_.Run(*library_, call.call());
    error_word_ = call.error_word();
    return status;
  }

  static TestTensor Random(DType type, int64_t elements, uint64_t seed, RandomRange range = {}) {
    TestTensor tensor(type, {elements});
    std::mt19937_64 random(seed);
    Randomise(tensor, random, range);
    return tensor;
  }

  uint64_t error_word_ = 0;
};

TEST_F(LoopTest, Softmax) {
  for (const int64_t columns : {1, 7, 300, 5000}) {
    TestTensor in = Random(DType::kBFloat16, 9 * columns, 1), out(DType::kBFloat16, {9 * columns});
    Check(loops::testing::Softmax(), {9, columns}, {&in, &out}, 0x1p-9);
  }
}

TEST_F(LoopTest, WhatIsPreparedIsCompiledOnceAndRuns) {
  TestTensor in = Random(DType::kBFloat16, 9 * 300, 1), out(DType::kBFloat16, {9 * 300});
  const LoopCall call(loops::testing::Softmax(), {9, 300}, {&in, &out});
  ASSERT_TRUE(call.refused().ok()) << call.refused();
  const auto made = [&] {
    const KernelCounters counters = library_->counters();
    return counters.compiled + counters.disk_hits + counters.shared_hits;
  };
  const uint64_t before = made();
  library_->Prepare(*call.call().kernel);
  library_->WaitForCompiles();
  EXPECT_EQ(made(), before + 1);
  LaunchList launches;
  const auto workspace = [](size_t) -> absl::StatusOr<void*> { return nullptr; };
  EXPECT_EQ(*library_->Plan(call.call(), workspace, launches), Readiness::kReady);
  library_->Prepare(*call.call().kernel);
  library_->WaitForCompiles();
  EXPECT_EQ(made(), before + 1);
}

TEST_F(LoopTest, Chains) {
  for (const DType type : {DType::kFloat32, DType::kBFloat16}) {
    for (const auto& [rows, columns] :
         {std::pair<int64_t, int64_t>{5, 300}, {70, 33}, {3, 9000}, {70, 2000}, {9, 768}, {5, 2048}}) {
      for (const loops::testing::Chain& chain : loops::testing::Chains(rows, columns, type).All()) {
        SCOPED_TRACE(std::string(chain.name));
        std::vector<TestTensor> tensors;
        for (size_t o = 0; o < chain.elements.size(); ++o) {
          const DType operand = chain.kernel.operands[o].type;
          tensors.push_back(Random(
              operand, chain.elements[o], o,
              operand == DType::kInt64 ? RandomRange{0, static_cast<double>(rows - 1)} : RandomRange{-2, 2}));
        }
        std::vector<TestTensor*> operands;
        for (TestTensor& tensor : tensors) operands.push_back(&tensor);
        Check(chain.kernel, {}, operands, type == DType::kFloat32 ? 0x1p-20 : 0x1p-8);
        EXPECT_EQ(error_word_, 0u);
      }
    }
  }
}

// Reductions that are cut into parts: of one point, and of a few adjacent columns.
TEST_F(LoopTest, LongReductions) {
  static constexpr DType kF32 = DType::kFloat32;
  for (const bool columns : {false, true}) {
    BodyBuilder b;
    const uint32_t width = columns ? b.Size(1) : 0, c = columns ? b.Dimension(width) : 0,
                   i = b.Dimension(b.Size(0), /*reduced=*/true);
    const uint32_t at = columns ? b.Add(b.Mul(i, width), c) : i, to = columns ? c : b.Number(0);
    const uint32_t x = b.Call(Function::add, kF32, b.Load(0, at), b.Load(1, to));
    const uint32_t reduced[] = {b.Reduce(Reduction::kSum, kF32, x), b.Reduce(Reduction::kMax, kF32, x),
                                b.Reduce(Reduction::kArgMin, kF32, x, b.IndexValue(i)),
                                b.Reduce(Reduction::kWelford, kF32, x),
                                b.Reduce(Reduction::kOnlineSoftmax, kF32, x)};
    loops::Kernel kernel = {.operands = {{kF32, Role::kRead}, {kF32, Role::kRead}}, .sizes = 2, .bodies = {}};
    const auto store = [&](uint32_t value, DType type) {
      kernel.operands.push_back({type, Role::kWritten});
      b.Store(static_cast<uint32_t>(kernel.operands.size() - 1), to, value);
    };
    for (const uint32_t value : reduced) store(value, kF32);
    for (const uint32_t value : {reduced[2], reduced[3], reduced[4]}) {
      const bool position = value == reduced[2];
      store(b.Make({.kind = StatementKind::kPart, .values = {value, kNone, kNone}, .integer = 1}),
            position ? DType::kInt64 : kF32);
    }
    kernel.bodies = {b.body};
    const int64_t wide = columns ? 20 : 1, rows = columns ? 20'001 : 400'001;
    std::vector<TestTensor> tensors = {Random(kF32, rows * wide, 1), Random(kF32, wide, 2)};
    for (size_t o = 2; o < kernel.operands.size(); ++o)
      tensors.emplace_back(kernel.operands[o].type, std::vector<int64_t>{wide});
    std::vector<TestTensor*> operands;
    for (TestTensor& tensor : tensors) operands.push_back(&tensor);
    Check(kernel, {rows, wide}, operands, 0x1p-21);
    EXPECT_GT(device_.groups(), 2u) << "it is cut";
  }
}

TEST_F(LoopTest, IndicesUnderAMask) {
  TestTensor table = Random(DType::kFloat32, 11, 1), index = Random(DType::kInt64, 1000, 2, {-11, 10}),
             mask = Random(DType::kBool, 1000, 3), out(DType::kFloat32, {1000});
  Check(loops::testing::MaskedGather(), {1000, 11}, {&table, &index, &mask, &out});
  mask.Set(77, 0);
  index.Set(77, 11);  // outside, where nothing is read
  Check(loops::testing::MaskedGather(), {1000, 11}, {&table, &index, &mask, &out});
  mask.Set(77, 1);
  Check(loops::testing::MaskedGather(), {1000, 11}, {&table, &index, &mask, &out});
  const Reported reported(error_word_);
  EXPECT_EQ(reported.error, DeviceError::kIndexOutOfRange);
  EXPECT_EQ(reported.index, 11);
  EXPECT_EQ(reported.statement, 4u);
  index.Set(77, -12);
  Check(loops::testing::MaskedGather(), {1000, 11}, {&table, &index, &mask, &out});
  EXPECT_EQ(Reported(error_word_).index, -12);
}

TEST_F(LoopTest, AStoreBesideAnEmptyReductionIsChecked) {
  BodyBuilder b;
  const uint32_t i = b.Dimension(b.Number(4)), j = b.Dimension(b.Size(0), /*reduced=*/true);
  const uint32_t sum = b.Reduce(Reduction::kSum, DType::kInt64, b.IndexValue(j));
  b.Store(0, b.Add(i, b.Size(1)), sum);
  const loops::Kernel kernel = {
      .operands = {{DType::kInt64, Role::kUpdated}}, .sizes = 2, .bodies = {b.body}};
  TestTensor out = Random(DType::kInt64, 4, 1);
  Check(kernel, {0, 0}, {&out});
  Check(kernel, {0, 3}, {&out});
  EXPECT_EQ(Reported(error_word_).error, DeviceError::kIndexOutOfRange);
  EXPECT_TRUE(out.MarginsIntact());
}

// More values for each column than the host's scratch has room for.
TEST_F(LoopTest, ColumnsOfVeryManyValues) {
  static constexpr DType kF32 = DType::kFloat32;
  BodyBuilder b;
  const uint32_t c = b.Dimension(b.Size(1)), r = b.Dimension(b.Size(0), /*reduced=*/true);
  const uint32_t x = b.Load(0, b.Add(b.Mul(r, b.Size(1)), c));
  uint32_t all = b.Load(1, c);
  for (int k = 0; k < 120; ++k) {
    const uint32_t scaled = b.Call(Function::mul, kF32, x, b.Real(k % 7 - 3));
    all = b.Call(Function::max, kF32, all, b.Reduce(Reduction::kMax, kF32, scaled));
  }
  b.Store(2, c, all);
  const loops::Kernel kernel = {
      .operands = {{kF32, Role::kRead}, {kF32, Role::kRead}, {kF32, Role::kWritten}},
      .sizes = 2,
      .bodies = {b.body}};
  TestTensor in = Random(kF32, 20 * 300, 1), first = Random(kF32, 300, 2), out(kF32, {300});
  Check(kernel, {20, 300}, {&in, &first, &out}, 0x1p-21);
}

// Tiles that are read across are turned first; those at the ends are not whole.
TEST_F(LoopTest, TurnedTiles) {
  for (const DType type : {DType::kInt8, DType::kInt32, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    for (const auto& [batches, rows, columns] : {std::array<int64_t, 3>{5, 161, 333}, {200, 16, 16}}) {
      TestTensor y = Random(type, batches * rows * columns, 1, {-2, 2}),
                 z = Random(type, rows * columns, 2, {-2, 2}),
                 x = Random(type, batches * rows * columns, 3, {-2, 2});
      Check(loops::testing::TransposedProducts(type), {batches, rows, columns}, {&y, &z, &x},
            type == DType::kBFloat16 ? 0x1p-8 : 0x1p-22);
    }
  }
}

TEST_F(LoopTest, AnAssertionThatFails) {
  BodyBuilder b;
  const uint32_t i = b.Dimension(b.Size(0));
  const uint32_t x = b.Load(0, i);
  b.Make({.kind = StatementKind::kAssert,
          .values = {b.Call(Function::lt, DType::kFloat32, x, b.Real(5)), kNone, kNone}});
  b.Store(1, i, b.Call(Function::neg, DType::kFloat32, x));
  const loops::Kernel kernel = {
      .operands = {{DType::kFloat32, Role::kRead}, {DType::kFloat32, Role::kWritten}},
      .sizes = 1,
      .bodies = {b.body}};
  TestTensor in = Random(DType::kFloat32, 100, 1, {-4, 4}), out(DType::kFloat32, {100});
  Check(kernel, {100}, {&in, &out});
  in.Set(50, 6);
  Check(kernel, {100}, {&in, &out});
  EXPECT_EQ(Reported(error_word_).error, DeviceError::kAssertion);
  EXPECT_EQ(Reported(error_word_).statement, 3u);
}

TEST_F(LoopTest, SumsInMemory) {
  constexpr int64_t kValues = 1000, kPlaces = 37;
  for (const DType type : {DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64, DType::kFloat16,
                           DType::kBFloat16, DType::kFloat32}) {
    TestTensor index = Random(DType::kInt64, kValues, 1, {0, kPlaces - 1}),
               value = Random(DType::kInt8, kValues, 2, {0, 2}), places(type, {kPlaces});
    Check(loops::testing::ScatteredSums(kValues, kPlaces, type), {}, {&index, &value, &places});
    EXPECT_EQ(error_word_, 0u);
  }
}

// Indices of every form, many of which leave their operand.
TEST_F(LoopTest, RandomIndices) {
  loops::testing::RandomKernels random(1);
  for (int i = 0; i < 60; ++i) {
    const loops::Kernel kernel = random.Next();
    for (int call = 0; call < 3; ++call) {
      TestTensor out = Random(DType::kInt64, 1 + random.Below(200), 1);
      // Points that write one element leave any of their values, so what is compared here is what is
      // reported.
      const std::vector<int64_t> sizes = {random.Below(9) - 1, random.Below(9) - 1};
      const absl::StatusOr<loops::KernelInfo> info = loops::CheckKernel(kernel);
      if (!info.ok()) continue;
      LoopReference reference(kernel, *info);
      TestTensor copy = out;
      const std::vector<TestTensor*> copies = {&copy};
      const absl::Status expected = reference.Run(sizes, copies);
      const absl::Status found = Run(kernel, sizes, {&out});
      ASSERT_EQ(found.code(), expected.code()) << found << loops::TextOf(kernel);
      if (!expected.ok()) continue;
      ASSERT_EQ(error_word_ != 0, reference.failure().has_value()) << loops::TextOf(kernel);
      ASSERT_TRUE(out.MarginsIntact());
    }
  }
}

// Loops that run through the segments of masks.
TEST_F(LoopTest, RandomMasks) {
  loops::testing::RandomKernels random(2);
  int failures = 0;
  for (int i = 0; i < 60; ++i) {
    const loops::Kernel kernel = random.NextMasked();
    const absl::StatusOr<loops::KernelInfo> info = loops::CheckKernel(kernel);
    ASSERT_TRUE(info.ok()) << info.status();
    for (int call = 0; call < 3; ++call) {
      TestTensor out = Random(DType::kInt64, 100, 1), in = Random(DType::kInt64, 1 + random.Below(16), 2);
      const std::vector<int64_t> sizes = {1 + random.Below(9), 1 + random.Below(9)};
      LoopReference reference(kernel, *info);
      TestTensor copy = out;
      const std::vector<TestTensor*> copies = {&copy, &in};
      ASSERT_TRUE(reference.Run(sizes, copies).ok());
      ASSERT_TRUE(Run(kernel, sizes, {&out, &in}).ok());
      ASSERT_EQ(error_word_ != 0, reference.failure().has_value()) << loops::TextOf(kernel);
      ASSERT_TRUE(out.MarginsIntact() && in.MarginsIntact());
      failures += error_word_ != 0;
    }
  }
  EXPECT_GT(failures, 20);
}

TEST_F(LoopTest, RandomComputations) {
  int compared = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    loops::testing::RandomComputation random(seed);
    const loops::Kernel kernel = random.Next();
    const absl::StatusOr<loops::KernelInfo> info = loops::CheckKernel(kernel);
    ASSERT_TRUE(info.ok()) << seed << ": " << info.status() << loops::TextOf(kernel);
    std::vector<TestTensor> tensors;
    for (size_t o = 0; o < kernel.operands.size(); ++o) {
      const bool is_scalar = kernel.operands[o].role == Role::kScalar;
      tensors.push_back(
          Random(kernel.operands[o].type, is_scalar ? 1 : random.elements(), seed + o, {-3, 3}));
    }
    std::vector<TestTensor*> operands;
    for (TestTensor& tensor : tensors) operands.push_back(&tensor);
    SCOPED_TRACE(seed);
    Check(kernel, random.sizes(), operands, 0x1p-8);
    if (HasFatalFailure()) return;
    ++compared;
  }
  EXPECT_EQ(compared, 150);
}

}  // namespace
}  // namespace xpud::kernels
