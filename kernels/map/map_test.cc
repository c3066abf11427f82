// Every element-wise row of the table, compiled, run on the host and compared with a long double evaluation.
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/compiler/formula.h"
#include "kernels/map/map_skeleton.h"
#include "kernels/testing/device.h"
#include "kernels/testing/reference.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {
namespace {

using ops::DType;

struct Tolerance {
  Exact relative, absolute, magnitude;
};

// PyTorch's (torch.testing.assert_close), and rounding of intermediate results in the compute type.
Tolerance ToleranceOf(DType compute, DType out) {
  if (!ops::IsFloating(out)) return {0, 0, 0};
  if (compute == DType::kFloat64 && out == DType::kFloat64) return {1e-12L, 1e-12L, 1e-14L};
  if (out == DType::kFloat16) return {1e-3L, 1e-5L, 1e-6L};
  if (out == DType::kBFloat16) return {8e-3L, 1e-5L, 1e-6L};
  return {1.3e-6L, 1e-6L, 4e-7L};
}

bool Close(Exact got, Exact want, Exact magnitude, const Tolerance& t) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::fabs(got - want) <= t.relative * std::fabs(want) + t.absolute + t.magnitude * magnitude;
}

class MapTest : public ::testing::Test {
 protected:
  MapTest() : library_(*KernelLibrary::Create({})) {}

  // Runs `row` and compares every element.
  void Check(const ops::Row& row, DType compute, std::vector<TestTensor>& outputs, const std::vector<TestTensor>& tensors,
             std::vector<Operand> inputs, const std::string& what) {
    std::vector<Operand> outs;
    for (const TestTensor& t : outputs) outs.push_back(t.operand());
    OpCall call{.row = &row, .compute = compute, .outputs = outs, .inputs = inputs, .attributes = {}};
    const absl::Status status = device_.Run(*library_, call);
    ASSERT_TRUE(status.ok()) << what << ": " << status;
    const MapFormula formula = *ParseMap(row.formula);
    for (size_t o = 0; o < outputs.size(); ++o) {
      ASSERT_TRUE(outputs[o].MarginsIntact()) << what;
      const Tolerance tolerance = ToleranceOf(compute, outputs[o].dtype());
      int64_t bad = 0;
      for (int64_t i = 0; i < outputs[o].numel(); ++i) {
        ReferenceEvaluator reference(formula.expression, compute);
        std::vector<int64_t> index(outputs[o].sizes().size());
        int64_t rest = i;
        for (size_t d = index.size(); d-- > 0; rest /= outputs[o].sizes()[d]) index[d] = rest % outputs[o].sizes()[d];
        for (size_t v = 0, t = 0; v < inputs.size(); ++v) {
          const ops::Number& number = inputs[v].number;
          reference.variables[v] = inputs[v].immediate ? (number.is_integer ? Exact{static_cast<Exact>(number.integer)} : Exact{number.real})
                                                       : tensors[t++].AtIndex(index);
          if (inputs[v].immediate && compute != DType::kFloat64 && ops::IsFloating(compute) && !inputs[v].number.is_integer) {
            reference.variables[v] = static_cast<float>(reference.variables[v]);
          }
        }
        reference.variables[static_cast<size_t>(Variable::kIndex)] = i;
        const Exact exact = reference.Evaluate(formula.outputs[o]);
        const Exact want = RoundTo(outputs[o].dtype(), exact);
        const Exact got = outputs[o].At(i);
        if (!Close(got, want, reference.magnitude, tolerance) && bad++ < 5) {
          ADD_FAILURE() << what << " element " << i << ": got " << static_cast<double>(got) << ", want "
                        << static_cast<double>(want) << " (" << static_cast<double>(exact) << ") for a=" << static_cast<double>(reference.variables[0])
                        << " b=" << static_cast<double>(reference.variables[1])
                        << " c=" << static_cast<double>(reference.variables[2]);
        }
      }
      ASSERT_EQ(bad, 0) << what;
    }
  }

  std::vector<DType> ComputeTypes(const ops::Row& row) {
    std::vector<DType> types;
    for (int t = 0; t < ops::kNumDTypes; ++t) {
      const auto type = static_cast<DType>(t);
      const bool floats_only = row.types == ops::TypeRule::kFloat || row.number == 130 || row.number == 131 || row.number == 132;
      if (!ops::Contains(row.dtypes, type) || (floats_only && !ops::IsFloating(type))) continue;
      types.push_back(type);
    }
    return types;
  }

  DType OutType(const ops::Row& row, DType compute, size_t output) {
    return row.types == ops::TypeRule::kBool || output == 1 ? DType::kBool : compute;
  }

  TestDevice device_;
  std::unique_ptr<KernelLibrary> library_;
  std::mt19937_64 random_{12345};
};

Operand Immediate(DType dtype, ops::Number number) {
  Operand operand;
  operand.dtype = dtype;
  operand.immediate = true;
  operand.number = number;
  return operand;
}

TEST_F(MapTest, EveryRowAgreesWithTheReferenceForEveryType) {
  for (const ops::Row& row : ops::kRows) {
    if (row.family != ops::Family::kMap) continue;
    const uint32_t seeds = SeedInputs(ParseMap(row.formula)->expression);
    for (const DType compute : ComputeTypes(row)) {
      for (const int64_t n : {1, 131}) {
        std::vector<TestTensor> tensors, outputs;
        std::vector<Operand> inputs;
        for (int i = 0; i < row.inputs; ++i) {
          if ((seeds >> i & 1) != 0) {
            inputs.push_back(Immediate(DType::kInt64, ops::Number::Integer(i == row.inputs - 1 ? 7 : 0x123456789ABCDEF)));
            continue;
          }
          const bool mask = (row.number == 93 && i == 0) || (row.number == 94 && i == 1);
          tensors.emplace_back(mask ? DType::kBool : compute, std::vector<int64_t>{n});
          RandomRange range{.specials = n > 1};
          if (row.number == 3) range = {-20, 20, false};
          if (row.number == 130 || row.number == 131) range = {0, 1, false};
          if (row.number == 115) range = {0.1, 0.9, false};
          Randomise(tensors.back(), random_, range);
          inputs.push_back(tensors.back().operand());
        }
        for (int o = 0; o < row.outputs; ++o) {
          outputs.emplace_back(OutType(row, compute, static_cast<size_t>(o)), std::vector<int64_t>{n});
        }
        Check(row, compute, outputs, tensors, inputs,
              std::string(row.aten) + " " + std::string(ops::Info(compute).name));
        if (HasFatalFailure()) break;
      }
    }
  }
}

}  // namespace
}  // namespace xpud::kernels
