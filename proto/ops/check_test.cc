#include "proto/ops/check.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xpud::ops {
namespace {

using ::testing::HasSubstr;

Operand Tensor(std::vector<int64_t> sizes, DType dtype = DType::kFloat32) {
  Operand operand;
  operand.dtype = dtype;
  operand.rank = static_cast<uint8_t>(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    operand.sizes[d] = sizes[d];
    operand.strides[d] = stride;
    stride *= sizes[d];
  }
  return operand;
}

Operand Absent() {
  Operand operand;
  operand.present = false;
  return operand;
}

absl::Status Check(const char* aten, std::vector<Operand> outputs, std::vector<Operand> inputs,
                   std::vector<Number> attributes = {}) {
  return CheckCall({&RowOf(aten), DType::kFloat32, outputs, inputs, attributes, nullptr});
}

const Number kZero = Number::Integer(0);

TEST(OpCheck, MapsBroadcast) {
  EXPECT_TRUE(Check("mul.Tensor", {Tensor({2, 3})}, {Tensor({2, 3}), Tensor({1, 3})}).ok());
  EXPECT_THAT(Check("mul.Tensor", {Tensor({2, 3})}, {Tensor({2, 3}), Tensor({1, 4})}).message(),
              HasSubstr("float32[1, 4] does not broadcast"));
  EXPECT_FALSE(Check("mul.Tensor", {Tensor({2, 3})}, {Tensor({2, 3}), Tensor({3})}).ok())
      << "ranks must be equal";
  EXPECT_FALSE(Check("mul.Tensor", {Tensor({2, 3})}, {Tensor({2, 3}), Absent()}).ok());
}

TEST(OpCheck, ReductionsKeepOrReduceEachDimension) {
  EXPECT_TRUE(Check("sum", {Tensor({2, 1})}, {Tensor({2, 3})}).ok());
  EXPECT_FALSE(Check("sum", {Tensor({3, 1})}, {Tensor({2, 3})}).ok());
  EXPECT_FALSE(Check("sum", {Tensor({2})}, {Tensor({2, 3})}).ok());
}

TEST(OpCheck, MatricesMustMultiply) {
  const std::vector<Number> attributes = {kZero, kZero, kZero};
  EXPECT_TRUE(Check("mm", {Tensor({2, 4})}, {Tensor({2, 3}), Tensor({3, 4}), Absent()}, attributes).ok());
  EXPECT_TRUE(
      Check("mm", {Tensor({2, 4})}, {Tensor({2, 3}), Tensor({3, 4}), Tensor({1, 4})}, attributes).ok());
  EXPECT_FALSE(Check("mm", {Tensor({2, 4})}, {Tensor({2, 3}), Tensor({2, 4}), Absent()}, attributes).ok());
  EXPECT_FALSE(
      Check("mm", {Tensor({2, 4})}, {Tensor({2, 3}), Tensor({3, 4}, DType::kFloat64), Absent()}, attributes)
          .ok());
  EXPECT_FALSE(Check("mm", {Tensor({2, 4})}, {Tensor({2, 3}), Tensor({3, 4}), Absent()}).ok())
      << "attributes are missing";
}

TEST(OpCheck, IndicesAreIntegers) {
  EXPECT_TRUE(Check("embedding", {Tensor({5, 8})}, {Tensor({100, 8}), Tensor({5}, DType::kInt64)}).ok());
  EXPECT_FALSE(Check("embedding", {Tensor({5, 8})}, {Tensor({100, 8}), Tensor({5})}).ok());
  EXPECT_FALSE(Check("embedding", {Tensor({6, 8})}, {Tensor({100, 8}), Tensor({5}, DType::kInt64)}).ok());
}

TEST(OpCheck, AScalarHasOneElementToSelect) {
  EXPECT_TRUE(Check("index_select", {Tensor({})}, {Tensor({}), Tensor({1}, DType::kInt64)}, {kZero}).ok());
  EXPECT_FALSE(Check("index_select", {Tensor({})}, {Tensor({}), Tensor({0}, DType::kInt64)}, {kZero}).ok());
  EXPECT_FALSE(Check("index_select", {Tensor({})}, {Tensor({}), Tensor({2}, DType::kInt64)}, {kZero}).ok());
}

TEST(OpCheck, AttentionShapesMustAgree) {
  const auto q = Tensor({2, 4, 5, 8}), k = Tensor({2, 2, 7, 8}), v = Tensor({2, 2, 7, 6}),
             out = Tensor({2, 4, 5, 6});
  const std::vector<Number> attributes = {Number::Real(1), kZero};
  const char* name = "_scaled_dot_product_fused_attention_overrideable";
  EXPECT_TRUE(Check(name, {out}, {q, k, v, Absent()}, attributes).ok());
  EXPECT_TRUE(
      Check(name, {out, Tensor({2, 4, 5})}, {q, k, v, Tensor({2, 4, 5, 7}, DType::kBool)}, attributes).ok());
  EXPECT_FALSE(Check(name, {out}, {q, k, v, Tensor({2, 1, 5, 7}, DType::kBool)}, attributes).ok());
  EXPECT_FALSE(Check(name, {out}, {q, Tensor({2, 3, 7, 8}), v, Absent()}, attributes).ok());
}

TEST(OpCheck, AttentionForTrainingIsBounded) {
  const auto q = Tensor({2, 4, 5, 8}), k = Tensor({2, 2, 7, 8}), v = Tensor({2, 2, 7, 6}),
             out = Tensor({2, 4, 5, 6}), sums = Tensor({2, 4, 5});
  const auto with = [](double dropout) {
    return std::vector<Number>{Number::Real(1), kZero, Number::Real(dropout), kZero, kZero};
  };
  const auto trains = [&](double dropout) {
    return Check("xpud::training_attention", {out, sums}, {q, k, v, Absent()}, with(dropout)).ok();
  };
  EXPECT_TRUE(trains(0) && trains(0.5) && trains(1));
  EXPECT_FALSE(trains(-0.1) || trains(1.1) || trains(std::nan("")) || trains(INFINITY));
  const auto backward = [&](const Operand& gradient, const Operand& logsumexp, const Operand& dk) {
    return Check("xpud::attention_backward", {q, dk, v}, {gradient, q, k, v, out, logsumexp, Absent()},
                 with(0))
        .ok();
  };
  EXPECT_TRUE(backward(out, sums, k));
  EXPECT_FALSE(backward(q, sums, k));
  EXPECT_FALSE(backward(out, Tensor({2, 4, 6}), k));
  EXPECT_FALSE(backward(out, Tensor({2, 4, 5}, DType::kFloat64), k));
  EXPECT_FALSE(backward(out, sums, v));
  EXPECT_FALSE(backward(out, sums, Tensor({2, 2, 7, 8}, DType::kFloat16)));
  EXPECT_FALSE(backward(Absent(), sums, k));
}

TEST(OpCheck, AttentionForTrainingHasColumns) {
  const std::vector<Number> attributes = {Number::Real(1), kZero, Number::Real(0), kZero, kZero};
  const auto long_and_empty = Tensor({1, 1, int64_t{1} << 60, 0}), sums = Tensor({1, 1, int64_t{1} << 60});
  EXPECT_FALSE(Check("xpud::training_attention", {long_and_empty, sums},
                     {long_and_empty, long_and_empty, long_and_empty, Absent()}, attributes)
                   .ok());
  EXPECT_FALSE(
      Check("xpud::attention_backward", {long_and_empty, long_and_empty, long_and_empty},
            {long_and_empty, long_and_empty, long_and_empty, long_and_empty, long_and_empty, sums, Absent()},
            attributes)
          .ok());
}

TEST(OpCheck, TypesOutsideTheRowAreNotImplemented) {
  const Call call = {&RowOf("bitwise_not"), DType::kFloat32, {}, {}, {}, nullptr};
  const auto a = Tensor({2});
  Call with = call;
  with.outputs = {&a, 1};
  with.inputs = {&a, 1};
  EXPECT_EQ(CheckCall(with).code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(CheckCall(with).message(), HasSubstr("\"bitwise_not\" not implemented for 'float32'"));
}

TEST(OpCheck, EveryRowRefusesACallWithoutOperands) {
  for (const Row& row : kRows) {
    EXPECT_FALSE(CheckCall({&row, DType::kFloat32, {}, {}, {}, nullptr}).ok()) << row.aten;
  }
}

TEST(OpCheck, ACallIsDescribedAsPeopleReadIt) {
  const std::vector<Operand> inputs = {Tensor({2, 3}), Absent()};
  EXPECT_EQ(Describe({&RowOf("mul.Tensor"), DType::kFloat32, {}, inputs, {}, nullptr}),
            "mul.Tensor(float32[2, 3], none)");
}

TEST(OpCheck, CallsAreWordedAlikeWhereTheirWordingIsTheSame) {
  const Operand weight = Tensor({10, 4}), narrow = Tensor({10, 3}), index = Tensor({5}, DType::kInt64);
  const std::vector<Operand> inputs[] = {{weight, index},
                                         {narrow, index},
                                         {weight, Tensor({5}, DType::kInt32)},
                                         {weight, Tensor({1, 5}, DType::kInt64)},
                                         {index, weight},
                                         {weight, Absent()},
                                         {weight, Absent(), index}};
  for (const auto& a : inputs)
    for (const auto& b : inputs)
      for (const char* op : {"embedding", "index_select"}) {
        const Call first = {&RowOf("embedding"), DType::kFloat32, {}, a, {}, nullptr};
        const Call second = {&RowOf(op), DType::kFloat32, {}, b, {}, nullptr};
        EXPECT_EQ(WordingOf(first) == WordingOf(second), Describe(first) == Describe(second))
            << Describe(first) << " " << Describe(second);
      }
}

}  // namespace
}  // namespace xpud::ops
