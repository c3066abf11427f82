// Maps and reductions of lists: each element as the map or reduction of it alone.
#include <vector>

#include "gtest/gtest.h"
#include "kernels/families/pack.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/tensor.h"
#include "proto/ops/check.h"

namespace xpud::kernels {
namespace {

using ops::DType;

struct Shape {
  std::vector<int64_t> sizes, strides;  // no strides: row-major
};

TestTensor Make(DType type, const Shape& shape) {
  return shape.strides.empty() ? TestTensor(type, shape.sizes) : TestTensor(type, shape.sizes, shape.strides);
}

Operand Immediate(double value) {
  Operand operand;
  operand.dtype = DType::kFloat64;
  operand.immediate = true;
  operand.number = ops::Number::Real(value);
  return operand;
}

// Many lengths, among them none and one; and layouts that are no lines.
std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (int i = 0; i < 90; ++i) shapes.push_back({{(i * 37) % 300}, {}});
  shapes.push_back({{}, {}});
  shapes.push_back({{1}, {}});
  shapes.push_back({{70001}, {}});
  shapes.push_back({{3, 5, 7}, {}});
  shapes.push_back({{3, 5, 7}, {1, 21, 3}});   // dense in another order
  shapes.push_back({{4, 6}, {12, 2}});         // gaps
  shapes.push_back({{2, 3, 4}, {40, 12, 3}});  // gaps
  return shapes;
}

class ForeachTest : public DeviceTest {
 protected:
  void Fill(TestTensor& tensor, double low = -4) { Randomise(tensor, random_, {low, 4, false}); }

  static Operand OperandOf(const TestTensor& tensor) { return tensor.operand(); }

  absl::Status Run(std::string_view family, std::string_view applied, DType compute,
                   std::vector<TestTensor>& outs, const std::vector<std::vector<Operand>>& lists) {
    std::vector<Operand> outputs, inputs;
    std::vector<uint16_t> lengths = {static_cast<uint16_t>(outs.size())};
    for (const TestTensor& out : outs) outputs.push_back(out.operand());
    for (const std::vector<Operand>& list : lists) {
      inputs.insert(inputs.end(), list.begin(), list.end());
      lengths.push_back(static_cast<uint16_t>(list.size()));
    }
    const ops::Row& row = ops::RowOf(family);
    lengths.resize(ops::DescriptorOf(row).lists);
    const std::vector<ops::Number> attributes = {ops::Number::Integer(ops::RowOf(applied).number)};
    const OpCall call = {.row = &row,
                         .compute = compute,
                         .outputs = outputs,
                         .inputs = inputs,
                         .attributes = attributes,
                         .lists = lengths};
    if (absl::Status status = ops::CheckCall(call); !status.ok()) return status;
    return device_.Run(*library_, call);
  }

  // Computes each element alone, and compares all bits.
  void CompareWithMaps(std::string_view applied, DType compute, const std::vector<TestTensor>& outs,
                       const std::vector<std::vector<Operand>>& lists) {
    for (size_t i = 0; i < outs.size(); ++i) {
      TestTensor want(outs[i].dtype(), outs[i].sizes());
      const Operand out = want.operand();
      std::vector<Operand> inputs;
      for (const std::vector<Operand>& list : lists) {
        inputs.push_back(list[list.size() == 1 ? 0 : i]);
        if (inputs.back().rank > 0 || inputs.back().immediate) continue;
        inputs.back().rank = out.rank;
        inputs.back().sizes.fill(1);
        inputs.back().strides.fill(0);
      }
      ASSERT_TRUE(device_
                      .Run(*library_, {.row = &ops::RowOf(applied),
                                       .compute = compute,
                                       .outputs = {&out, 1},
                                       .inputs = inputs,
                                       .attributes = {}})
                      .ok());
      ASSERT_TRUE(outs[i].MarginsIntact()) << applied << " tensor " << i;
      for (int64_t e = 0; e < want.numel(); ++e)
        ASSERT_EQ(outs[i].At(e), want.At(e)) << applied << " tensor " << i << " element " << e;
    }
  }

  std::mt19937_64 random_{7};
};

std::vector<Operand> OperandsOf(const std::vector<TestTensor>& tensors) {
  std::vector<Operand> operands;
  for (const TestTensor& tensor : tensors) operands.push_back(tensor.operand());
  return operands;
}

TEST_F(ForeachTest, EachElementIsThatOfItsMap) {
  for (const DType type :
       {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16, DType::kInt64}) {
    std::vector<TestTensor> a, b, out;
    for (const Shape& shape : Shapes()) {
      a.push_back(Make(type, shape));
      b.push_back(Make(type, {shape.sizes, {}}));
      out.push_back(Make(type, shape));
      Fill(a.back());
      Fill(b.back(), 1);
    }
    std::vector<Operand> alphas, alpha = {Immediate(3)};
    for (size_t i = 0; i < a.size(); ++i) alphas.push_back(Immediate(static_cast<double>(i) - 7));
    for (const auto& last : {alpha, alphas}) {
      const std::vector<std::vector<Operand>> lists = {OperandsOf(a), OperandsOf(b), last};
      ASSERT_TRUE(Run("xpud::foreach", "add.Tensor", type, out, lists).ok());
      CompareWithMaps("add.Tensor", type, out, lists);
    }
    TestTensor factor(type, {});
    factor.Set(0, 3);
    const std::vector<std::vector<Operand>> lists = {OperandsOf(a), {factor.operand()}};
    ASSERT_TRUE(Run("xpud::foreach", "mul.Tensor", type, out, lists).ok());
    CompareWithMaps("mul.Tensor", type, out, lists);
  }
}

TEST_F(ForeachTest, TypesAreConvertedAndMixed) {
  std::vector<TestTensor> a, out;
  const DType types[] = {DType::kFloat32, DType::kBFloat16, DType::kInt32, DType::kBool};
  for (int i = 0; i < 60; ++i) {
    a.emplace_back(types[i / 9 % 4], std::vector<int64_t>{i * 11 % 200 + 1});
    out.emplace_back(types[i / 5 % 3], std::vector<int64_t>{i * 11 % 200 + 1});
    Fill(a.back());
  }
  const std::vector<std::vector<Operand>> lists = {OperandsOf(a)};
  ASSERT_TRUE(Run("xpud::foreach", "_copy_from", DType::kFloat32, out, lists).ok());
  CompareWithMaps("_copy_from", DType::kFloat32, out, lists);
}

// The same tensor several times: one after the other, as in a loop.
TEST_F(ForeachTest, TensorsThatShareMemoryAreUpdatedInOrder) {
  for (const int64_t size : {int64_t{5}, int64_t{300000}}) {
    std::vector<TestTensor> tensors;
    for (int i = 0; i < 3; ++i) tensors.emplace_back(DType::kFloat32, std::vector<int64_t>{size});
    for (TestTensor& tensor : tensors)
      for (int64_t e = 0; e < size; ++e) tensor.Set(e, 1);
    std::vector<Operand> operands, inputs;
    for (int round = 0; round < 4; ++round)
      for (const TestTensor& tensor : tensors) operands.push_back(tensor.operand());
    inputs = operands;
    inputs.push_back(tensors[1].operand());  // the factor of all is itself in the list
    inputs.back().sizes[0] = 1;
    const std::vector<ops::Number> attributes = {ops::Number::Integer(ops::RowOf("mul.Tensor").number)};
    for (Operand& operand : operands) ASSERT_EQ(operand.rank, 1);
    const std::vector<uint16_t> lists = {12, 12, 1, 0, 0, 0};
    for (int64_t e = 0; e < size; ++e) tensors[1].Set(e, 3);
    ASSERT_TRUE(device_
                    .Run(*library_, {.row = &ops::RowOf("xpud::foreach"),
                                     .compute = DType::kFloat32,
                                     .outputs = operands,
                                     .inputs = inputs,
                                     .attributes = attributes,
                                     .lists = lists})
                    .ok());
    // Factor 3 for the first, then the second becomes 9, 81, 81 * 81, ...; each uses the factor of its turn.
    Exact factor = 3, first = 1, third = 1;
    for (int round = 0; round < 4; ++round) {
      first *= factor;
      factor *= factor;
      third *= factor;
      first = RoundTo(DType::kFloat32, first), factor = RoundTo(DType::kFloat32, factor),
      third = RoundTo(DType::kFloat32, third);
    }
    EXPECT_EQ(tensors[0].At(size - 1), first);
    EXPECT_EQ(tensors[1].At(0), factor);
    EXPECT_EQ(tensors[2].At(0), third);
  }
}

TEST_F(ForeachTest, FewLaunchesServeManyTensors) {
  std::vector<TestTensor> a;
  for (int i = 0; i < 200; ++i) a.emplace_back(DType::kFloat32, std::vector<int64_t>{100});
  const std::vector<Operand> operands = OperandsOf(a), factor = {Immediate(2)};
  std::vector<Operand> inputs = operands;
  inputs.push_back(factor[0]);
  const std::vector<ops::Number> attributes = {ops::Number::Integer(ops::RowOf("mul.Tensor").number)};
  const std::vector<uint16_t> lists = {200, 200, 1, 0, 0, 0};
  const OpCall call = {.row = &ops::RowOf("xpud::foreach"),
                       .compute = DType::kFloat32,
                       .outputs = operands,
                       .inputs = inputs,
                       .attributes = attributes,
                       .lists = lists};
  LaunchList launches;
  ASSERT_TRUE(device_.Plan(*library_, call, launches).ok());
  EXPECT_EQ(launches.size(), 4u);  // in place: an address and a size for each
}

TEST_F(ForeachTest, EachElementIsTheReductionOfItsTensor) {
  for (const DType type : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    for (const std::string_view row : {"linalg_vector_norm", "xpud::norm_1", "xpud::norm_inf"}) {
      std::vector<TestTensor> a, out;
      for (const Shape& shape : Shapes()) {
        a.push_back(Make(type, shape));
        Fill(a.back());
        out.emplace_back(type, std::vector<int64_t>{});
      }
      ASSERT_TRUE(Run("xpud::foreach_reduce", row, type, out, {OperandsOf(a)}).ok());
      for (size_t i = 0; i < a.size(); ++i) {
        Exact sum = 0;
        for (int64_t e = 0; e < a[i].numel(); ++e) {
          const Exact x = std::fabs(a[i].At(e));
          sum = row == "xpud::norm_1" ? sum + x : row == "xpud::norm_inf" ? std::max(sum, x) : sum + x * x;
        }
        const Exact want = row == "linalg_vector_norm" ? std::sqrt(sum) : sum;
        const Exact tolerance = type == DType::kBFloat16 ? 4e-3L : type == DType::kFloat32 ? 5e-7L : 1e-13L;
        ASSERT_NEAR(static_cast<double>(out[i].At(0)), static_cast<double>(want),
                    static_cast<double>(tolerance * want))
            << row << " tensor " << i;
        ASSERT_TRUE(out[i].MarginsIntact());
      }
    }
  }
}

TEST_F(ForeachTest, PositionsAreThoseOfTheElements) {
  std::vector<TestTensor> a, out;
  for (const Shape& shape : Shapes()) {
    if (Make(DType::kFloat32, shape).numel() == 0) continue;
    a.push_back(Make(DType::kFloat32, shape));
    Fill(a.back());
    out.emplace_back(DType::kInt64, std::vector<int64_t>{});
  }
  ASSERT_TRUE(Run("xpud::foreach_reduce", "argmax", DType::kFloat32, out, {OperandsOf(a)}).ok());
  for (size_t i = 0; i < a.size(); ++i) {
    int64_t want = 0;
    for (int64_t e = 1; e < a[i].numel(); ++e) want = a[i].At(e) > a[i].At(want) ? e : want;
    ASSERT_EQ(out[i].At(0), want) << i;
  }
}

TEST_F(ForeachTest, NanIsKept) {
  std::vector<TestTensor> a, out;
  for (int i = 0; i < 3; ++i) {
    a.emplace_back(DType::kFloat32, std::vector<int64_t>{100});
    Fill(a.back());
    out.emplace_back(DType::kFloat32, std::vector<int64_t>{});
  }
  a[1].Set(77, NAN);
  for (const std::string_view row : {"linalg_vector_norm", "xpud::norm_1", "xpud::norm_inf", "amax"}) {
    ASSERT_TRUE(Run("xpud::foreach_reduce", row, DType::kFloat32, out, {OperandsOf(a)}).ok());
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(std::isnan(static_cast<double>(out[i].At(0))), i == 1) << row;
  }
}

TEST_F(ForeachTest, CallsThatDoNotFitAreRefused) {
  std::vector<TestTensor> a, out;
  for (int i = 0; i < 3; ++i) {
    a.emplace_back(DType::kFloat32, std::vector<int64_t>{4});
    out.emplace_back(DType::kFloat32, std::vector<int64_t>{4});
  }
  const std::vector<Operand> operands = OperandsOf(a), two(operands.begin(), operands.begin() + 2);
  EXPECT_FALSE(Run("xpud::foreach", "mul.Tensor", DType::kFloat32, out, {operands, two}).ok());
  EXPECT_FALSE(Run("xpud::foreach", "mul.Tensor", DType::kFloat32, out, {operands}).ok());
  EXPECT_FALSE(Run("xpud::foreach", "neg", DType::kFloat32, out, {operands, operands}).ok());
  EXPECT_FALSE(Run("xpud::foreach", "amax", DType::kFloat32, out, {operands}).ok());
  EXPECT_FALSE(Run("xpud::foreach", "xpud::foreach", DType::kFloat32, out, {operands}).ok());
  EXPECT_FALSE(Run("xpud::foreach_reduce", "amax", DType::kFloat32, out, {operands}).ok());  // rank 1
  std::vector<TestTensor> longer;
  for (int i = 0; i < 3; ++i) longer.emplace_back(DType::kFloat32, std::vector<int64_t>{5});
  EXPECT_FALSE(Run("xpud::foreach", "neg", DType::kFloat32, longer, {operands}).ok());
}

}  // namespace
}  // namespace xpud::kernels
