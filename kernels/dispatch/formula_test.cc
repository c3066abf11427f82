// The formula language: precedence, sharing, the parts of a reduction, and what is refused.
#include "kernels/compiler/formulas.h"

#include <tuple>

#include "gtest/gtest.h"
#include "kernels/testing/reference.h"
#include "proto/ops/op_table.h"

namespace xpud::kernels {
namespace {

Exact Value(const char* text, Exact a = 0, Exact b = 0) {
  const MapFormula formula = *ParseMap(text);
  ReferenceEvaluator evaluator(formula.expression, ops::DType::kFloat64);
  evaluator.variables[0] = a;
  evaluator.variables[1] = b;
  return evaluator.Evaluate(formula.outputs[0]);
}

TEST(FormulaTest, PrecedenceIsThatOfC) {
  EXPECT_EQ(Value("1 + 2 * 3"), 7);
  EXPECT_EQ(Value("10 - 4 - 3"), 3);
  EXPECT_EQ(Value("-a * a", 3), -9);
  EXPECT_EQ(Value("(1 + 2) * 3"), 9);
  EXPECT_EQ(Value("1 + 1 == 2 && 3 < 2 || 1"), 1);
  EXPECT_EQ(Value("1 | 6 & 3"), 3);
  EXPECT_EQ(Value("where(a < b, a, b)", 4, 5), 4);
  EXPECT_EQ(Value("!a", 0), 1);
  EXPECT_EQ(Value("1.5e1"), 15);
}

TEST(FormulaTest, StoredRoundsToTheOutputsType) {
  const MapFormula formula = *ParseMap("where(stored(a) == 1, eps, a)");
  for (const auto& [type, value, expected] : {std::tuple{ops::DType::kFloat16, 0.9999, 0x1p-23},
                                              {ops::DType::kBFloat16, 0.999, 0x1p-23},
                                              {ops::DType::kFloat16, 0.999, 0.999},
                                              {ops::DType::kFloat32, 0.9999, 0.9999}}) {
    ReferenceEvaluator evaluator(formula.expression, ops::DType::kFloat32, type);
    evaluator.variables[0] = value;
    EXPECT_EQ(static_cast<double>(evaluator.Evaluate(formula.outputs[0])), expected);
  }
}

TEST(FormulaTest, CommonSubexpressionsAreOneNode) {
  const MapFormula formula = *ParseMap("exp(a * b) + exp(a * b); a * b");
  EXPECT_EQ(formula.outputs.size(), 2u);
  EXPECT_EQ(formula.expression.size(), 5u);  // a, b, a * b, exp, +
}

TEST(FormulaTest, PartsOfAReduction) {
  const ReduceFormula formula =
      *ParseReduce("lowest, -1:i64 | max(p, a), where(a > p, k, q) | max(p, p2), q2 | p, q");
  ASSERT_EQ(formula.state.size(), 2u);
  EXPECT_FALSE(formula.state[0].position);
  EXPECT_TRUE(formula.state[1].position);
  EXPECT_EQ(formula.outputs.size(), 2u);
}

TEST(FormulaTest, MistakesAreRefused) {
  for (const char* text :
       {"", "a +", "a b", "(a", "nothing", "exp(a, b)", "exp(", "max(a)", "a; ", "1 +* 2", "foo(a)"}) {
    EXPECT_FALSE(ParseMap(text).ok()) << text;
  }
  for (const char* text : {"0", "0 | p", "0 | p | p", "0, 0 | p | p | p", "0 | p | p | p |",
                           "0,0,0,0,0 | p,p,p,p,p | p,p,p,p,p | p"}) {
    EXPECT_FALSE(ParseReduce(text).ok()) << text;
  }
}

TEST(FormulaTest, EveryRowOfTheTableParses) {
  for (const ops::Row& row : ops::kRows) {
    if (row.family == ops::Family::kMap || row.family == ops::Family::kScatter ||
        row.family == ops::Family::kScatterAnyOrder) {
      const auto formula = ParseMap(row.formula);
      ASSERT_TRUE(formula.ok()) << formula.status();
      EXPECT_EQ(formula->outputs.size(), row.outputs) << row.aten;
    } else if (row.family == ops::Family::kReduce || row.family == ops::Family::kJointReduce ||
               row.family == ops::Family::kSegments) {
      const auto formula = ParseReduce(row.formula);
      ASSERT_TRUE(formula.ok()) << formula.status();
      EXPECT_EQ(formula->outputs.size(), row.outputs) << row.aten;
    }
  }
}

}  // namespace
}  // namespace xpud::kernels
