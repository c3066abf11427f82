// Each reduction of the table, over layouts for each loop order, compared with a long double evaluation.
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/compiler/formulas.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/reference.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {
namespace {

using ops::DType;

struct Shape {
  const char* name;
  std::vector<int64_t> sizes, strides;
  std::vector<bool> reduced;
};

const Shape kShapes[] = {
    {"no dimensions", {}, {}, {}},
    {"one dimension", {1000}, {1}, {true}},
    {"short rows", {7, 5}, {5, 1}, {false, true}},
    {"rows", {5, 133}, {133, 1}, {false, true}},
    {"columns", {133, 75}, {75, 1}, {true, false}},
    {"few columns", {50, 3}, {3, 1}, {true, false}},
    {"strided rows", {5, 67}, {134, 2}, {false, true}},
    {"transposed", {33, 40}, {1, 33}, {false, true}},
    {"outer and inner", {6, 7, 40}, {280, 40, 1}, {true, false, true}},
    {"middle", {3, 20, 37}, {740, 37, 1}, {false, true, false}},
    {"all of rank 3", {4, 5, 41}, {205, 41, 1}, {true, true, true}},
    {"permuted, rank 4", {3, 4, 5, 6}, {1, 3, 12, 60}, {true, false, true, false}},
    {"expanded", {9, 17}, {0, 1}, {true, false}},
    {"none reduced", {3, 40}, {40, 1}, {false, false}},
    {"nothing to reduce", {3, 0}, {1, 1}, {false, true}},
    {"no outputs", {0, 3}, {3, 1}, {false, true}},
    {"large, cut into parts", {600007}, {1}, {true}},
    {"large rows", {3, 300001}, {300001, 1}, {false, true}},
    {"large columns", {70001, 8}, {8, 1}, {true, false}},
    {"large, outer parts", {900, 3, 400}, {1200, 400, 1}, {true, false, true}},
};

class ReduceTest : public DeviceTest {
 protected:
  static DType OutType(const ops::Row& row, DType input, size_t output) {
    switch (row.types) {
      case ops::TypeRule::kSum:
        return ops::IsFloating(input) ? input : DType::kInt64;
      case ops::TypeRule::kBool:
        return DType::kBool;
      case ops::TypeRule::kIndex:
        return DType::kInt64;
      case ops::TypeRule::kValueIndex:
        return output == 1 ? DType::kInt64 : input;
      default:
        return input;
    }
  }

  void Check(const ops::Row& row, DType type, const Shape& shape, bool specials) {
    const std::string what =
        std::string(row.aten) + " " + std::string(ops::Info(type).name) + " " + shape.name;
    TestTensor a(type, shape.sizes, shape.strides);
    const bool product = row.aten.starts_with("prod");
    Randomise(a, random_,
              {.low = product ? 0.5 : -4.0, .high = product ? 1.5 : 4.0, .specials = specials && !product});
    std::vector<int64_t> out_sizes = shape.sizes;
    int64_t n = 1;
    for (size_t d = 0; d < out_sizes.size(); ++d) {
      if (!shape.reduced[d]) continue;
      n *= out_sizes[d];
      out_sizes[d] = 1;
    }
    if (n == 0 && (row.aten.starts_with("am") || row.aten.starts_with("arg"))) return;
    const ReduceFormula formula = *ParseReduce(row.formula);
    std::vector<TestTensor> outputs;
    std::vector<Operand> outs;
    for (size_t o = 0; o < row.outputs; ++o) outputs.emplace_back(OutType(row, type, o), out_sizes);
    for (const TestTensor& t : outputs) outs.push_back(t.operand());
    const Operand input = a.operand();
    const ops::Number correction = ops::Number::Integer(1);
    const bool attribute = formula.expression.Uses(Variable::kB);
    OpCall call{.row = &row,
                .compute = type,
                .outputs = outs,
                .inputs = {&input, 1},
                .attributes = {&correction, attribute ? 1u : 0u}};
    const absl::Status status = device_.Run(*library_, call);
    ASSERT_TRUE(status.ok()) << what << ": " << status;
    Compare(row, type, a, formula, outputs, n, what);
  }

  // Steps the formula over each reduced row in order.
  void Compare(const ops::Row& row, DType type, const TestTensor& a, const ReduceFormula& formula,
               const std::vector<TestTensor>& outputs, int64_t n, const std::string& what) {
    const std::vector<int64_t>&sizes = a.sizes(), &out_sizes = outputs[0].sizes();
    struct Row {
      std::vector<Exact> state;
      int64_t position = 0;
      Exact magnitude = 0;
    };
    std::vector<Row> rows(static_cast<size_t>(outputs[0].numel()));
    ReferenceEvaluator reference(formula.expression, ops::IsFloating(type) ? DType::kFloat64 : DType::kInt64);
    reference.variables[static_cast<size_t>(Variable::kB)] = 1;
    for (Row& r : rows) {
      for (const auto& component : formula.state) r.state.push_back(reference.Evaluate(component.init));
    }
    for (int64_t i = 0; i < a.numel(); ++i) {
      int64_t at = 0, rest = i, scale = 1;
      for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d]) {
        if (out_sizes[d] == 1) continue;
        at += rest % sizes[d] * scale;
        scale *= out_sizes[d];
      }
      Row& r = rows[static_cast<size_t>(at)];
      std::copy(r.state.begin(), r.state.end(), reference.variables.begin() + static_cast<int>(Variable::kP));
      reference.variables[static_cast<size_t>(Variable::kA)] = a.At(i);
      reference.variables[static_cast<size_t>(Variable::kPosition)] = r.position++;
      if (std::isfinite(a.At(i))) r.magnitude += std::fabs(a.At(i));
      for (size_t c = 0; c < r.state.size(); ++c) r.state[c] = reference.Evaluate(formula.state[c].step);
    }
    int bad = 0;
    for (size_t at = 0; at < rows.size(); ++at) {
      std::copy(rows[at].state.begin(), rows[at].state.end(),
                reference.variables.begin() + static_cast<int>(Variable::kP));
      reference.variables[static_cast<size_t>(Variable::kCount)] = n;
      for (size_t o = 0; o < outputs.size(); ++o) {
        const DType out = outputs[o].dtype();
        const Exact want = RoundTo(out, reference.Evaluate(formula.outputs[o]));
        const Exact got = outputs[o].At(static_cast<int64_t>(at));
        const Exact unit = out == DType::kFloat64   ? 1e-13L
                           : out == DType::kFloat32 ? 3e-6L
                           : out == DType::kFloat16 ? 1e-3L
                                                    : 8e-3L;
        const bool exact = !ops::IsFloating(out);
        const Exact scale =
            row.aten.starts_with("mean") ? rows[at].magnitude / std::max<Exact>(n, 1) : rows[at].magnitude;
        const Exact tolerance = exact ? 0 : unit * (std::fabs(want) + 0.03L * scale + 1e-3L);
        const bool close = std::isnan(want)   ? std::isnan(got)
                           : std::isinf(want) ? got == want
                                              : std::fabs(got - want) <= tolerance;
        if (!close && bad++ < 3) {
          ADD_FAILURE() << what << " output " << o << " element " << at << ": got "
                        << static_cast<double>(got) << ", want " << static_cast<double>(want);
        }
      }
    }
    ASSERT_EQ(bad, 0) << what;
    for (const TestTensor& t : outputs) ASSERT_TRUE(t.MarginsIntact()) << what;
  }

  std::mt19937_64 random_{99};
};

TEST_F(ReduceTest, EveryRowAgreesWithTheReferenceForEveryLayout) {
  for (const ops::Row& row : ops::kRows) {
    if (row.family != ops::Family::kReduce) continue;
    for (const Shape& shape : kShapes) {
      Check(row, DType::kFloat32, shape, false);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(ReduceTest, EveryRowAgreesWithTheReferenceForEveryType) {
  for (const ops::Row& row : ops::kRows) {
    if (row.family != ops::Family::kReduce) continue;
    for (int t = 0; t < ops::kNumDTypes; ++t) {
      if (!ops::Contains(row.dtypes, static_cast<DType>(t))) continue;
      for (const int shape : {3, 4, 8}) Check(row, static_cast<DType>(t), kShapes[shape], false);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(ReduceTest, InfinitiesAndNansGoWhereTheyShould) {
  for (const char* name : {"sum", "amax", "amin", "argmax", "argmin", "any", "all"}) {
    for (const int shape : {3, 4, 5, 6}) {
      Check(ops::RowOf(name), DType::kFloat32, kShapes[shape], true);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(ReduceTest, FirstOfEqualExtremesIsFoundInEveryLoopOrder) {
  const ops::Row& row = ops::RowOf("argmax");
  for (const int64_t n : {40, 500, 600000}) {
    TestTensor a(DType::kFloat32, {n});
    for (int64_t i = 0; i < n; ++i) a.Set(i, 1);
    TestTensor out(DType::kInt64, {1});
    for (const int64_t first : {n - 2, n / 2, int64_t{17}, int64_t{3}}) {
      a.Set(first, 7);
      const Operand input = a.operand(), output = out.operand();
      ASSERT_TRUE(device_
                      .Run(*library_, {.row = &row,
                                       .compute = DType::kFloat32,
                                       .outputs = {&output, 1},
                                       .inputs = {&input, 1},
                                       .attributes = {}})
                      .ok());
      EXPECT_EQ(out.At(0), first);
    }
  }
}

TEST_F(ReduceTest, ResultDoesNotDependOnTheNumberOfWorkers) {
  KernelLibrary::Options options = device_.options();
  options.workers = 17;
  const auto many = *KernelLibrary::Create(options);
  TestTensor a(DType::kFloat32, {1000003});
  Randomise(a, random_);
  TestTensor one(DType::kFloat32, {1}), other(DType::kFloat32, {1});
  for (auto [library, out] : {std::pair{library_.get(), &one}, {many.get(), &other}}) {
    const Operand input = a.operand(), output = out->operand();
    ASSERT_TRUE(device_
                    .Run(*library, {.row = &ops::RowOf("sum"),
                                    .compute = DType::kFloat32,
                                    .outputs = {&output, 1},
                                    .inputs = {&input, 1},
                                    .attributes = {}})
                    .ok());
    EXPECT_GT(device_.groups(), 2u);
  }
  EXPECT_EQ(one.At(0), other.At(0));
}

}  // namespace
}  // namespace xpud::kernels
