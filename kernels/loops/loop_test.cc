// Compiled loop kernels against the reference that runs them statement by statement.
#include <cmath>
#include <map>
#include <numeric>

#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/loop_reference.h"
#include "proto/loops/codec.h"
#include "proto/loops/definition.h"
#include "proto/loops/testing/builder.h"
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
    const auto definition = loops::Definition::Create(loops::Encode(kernel), "test");
    if (!definition.ok()) return definition.status();
    loops::CallCache cache(*definition);
    return Run(cache, sizes, operands);
  }

  absl::Status Run(loops::CallCache& cache, const std::vector<int64_t>& sizes,
                   const std::vector<TestTensor*>& operands) {
    const loops::Kernel& kernel = cache.definition().kernel();
    std::vector<Operand> outputs, inputs;
    for (size_t i = 0; i < operands.size(); ++i) {
      Operand operand = operands[i]->operand();
      if (kernel.operands[i].role == Role::kScalar) {
        const bool real = ops::IsFloating(operand.dtype);
        const Exact value = operands[i]->At(0);
        operand = {.dtype = operand.dtype, .immediate = true};
        operand.number = real ? ops::Number::Real(static_cast<double>(value))
                              : ops::Number::Integer(static_cast<int64_t>(value));
      }
      (kernel.operands[i].role >= Role::kWritten ? outputs : inputs).push_back(operand);
    }
    std::vector<ops::Number> attributes = {ops::Number::Integer(1),
                                           ops::Number::Integer(static_cast<int64_t>(sizes.size()))};
    for (const int64_t size : sizes) attributes.push_back(ops::Number::Integer(size));
    const std::vector<uint16_t> lists = {static_cast<uint16_t>(outputs.size()),
                                         static_cast<uint16_t>(inputs.size())};
    static const ops::Row& row = ops::RowOf("xpud::loop");
    OpCall call = {.row = &row,
                   .outputs = outputs,
                   .inputs = inputs,
                   .attributes = attributes,
                   .error_word = &error_word_,
                   .lists = lists};
    error_word_ = 0;
    const auto found = cache.Find(call);
    if (!found.ok()) return found.status();
    call.kernel = *found;
    return device_.Run(*library_, call);
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
