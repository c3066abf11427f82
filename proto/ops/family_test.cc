#include "proto/ops/family.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "proto/ops/check.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

// A sample as operands, with its own storage.
struct SampleCall {
  explicit SampleCall(const Row& row, DType type) : sample(DescriptorOf(row).sample(row, type)) {
    for (const Sample::Tensor& tensor : sample.outputs) outputs.push_back(OperandOf(tensor));
    for (const Sample::Tensor& tensor : sample.inputs) inputs.push_back(OperandOf(tensor));
    call = {.row = &row,
            .compute = type,
            .outputs = outputs,
            .inputs = inputs,
            .attributes = sample.attributes,
            .lists = sample.lists};
  }
  static Operand OperandOf(const Sample::Tensor& tensor) {
    Operand operand;
    operand.dtype = tensor.dtype;
    operand.immediate = tensor.immediate;
    operand.number = tensor.number;
    operand.rank = static_cast<uint8_t>(tensor.sizes.size());
    std::copy(tensor.sizes.begin(), tensor.sizes.end(), operand.sizes.begin());
    int64_t stride = 1;
    for (int d = operand.rank - 1; d >= 0; --d) {
      operand.strides[d] = stride;
      stride *= operand.sizes[d];
    }
    return operand;
  }

  Sample sample;
  std::vector<Operand> outputs, inputs;
  Call call;
};

DType TypeOf(const Row& row) {
  for (const DType type : {DType::kFloat32, DType::kInt64}) {
    if (Contains(row.dtypes, type)) return type;
  }
  return DType::kInt32;
}

TEST(Family, NamesAreUnique) {
  std::set<std::string_view> seen;
  for (size_t f = 0; f < kNumFamilies; ++f)
    EXPECT_TRUE(seen.insert(DescriptorOf(static_cast<Family>(f)).name).second);
}

TEST(Family, RowsHaveTheOperandsThatTheirFamiliesName) {
  for (const Row& row : kRows) {
    const FamilyDescriptor& family = DescriptorOf(row);
    ASSERT_NE(family.check, nullptr) << row.aten;
    if (family.inputs.empty()) continue;
    size_t optional = 0;
    for (const Parameter& input : family.inputs) optional += input.is(kOptional) ? 1 : 0;
    EXPECT_EQ(row.inputs, family.inputs.size()) << row.aten;
    EXPECT_EQ(row.optional, optional) << row.aten;
    EXPECT_EQ(row.outputs, family.outputs.size()) << row.aten;
  }
}

TEST(Family, ListsAreCounted) {
  for (const FamilyDescriptor* const family : kFamilies) {
    int lists = 0;
    for (const auto parameters : {family->outputs, family->inputs})
      for (const Parameter& parameter : parameters) lists += parameter.is(kList) ? 1 : 0;
    EXPECT_EQ(lists, family->lists) << family->name;
  }
}

TEST(Family, FamiliesWithIndicesSayHowManyTheyMayName) {
  for (size_t f = 0; f < kNumFamilies; ++f) {
    const FamilyDescriptor& family = DescriptorOf(static_cast<Family>(f));
    bool indices = false;
    for (const Parameter& input : family.inputs) indices |= input.is(kIndices);
    EXPECT_EQ(indices, family.reads_indices()) << family.name;
  }
}

TEST(Family, SamplesAreRight) {
  for (const Row& row : kRows) {
    const SampleCall sample(row, TypeOf(row));
    EXPECT_TRUE(CheckCall(sample.call).ok()) << row.aten << ": " << CheckCall(sample.call);
  }
}

// A client that knows the descriptor alone can find the size, and name the outputs.
TEST(Family, SizedFamiliesNameTheRowThatFindsTheSize) {
  for (const Row& row : kRows) {
    const FamilyDescriptor& family = DescriptorOf(row);
    bool sized = false;
    for (const Parameter& output : family.outputs) sized |= output.is(kSized);
    EXPECT_EQ(sized, family.is_sized()) << row.aten;
    if (!sized) continue;
    const Row* const sizing = FindRow(family.sized_by);
    ASSERT_NE(sizing, nullptr) << row.aten;
    const FamilyDescriptor& first = DescriptorOf(*sizing);
    ASSERT_EQ(first.inputs.size() + first.outputs.size(), family.inputs.size()) << row.aten;
    EXPECT_EQ(sizing->dtypes, row.dtypes) << row.aten;
    EXPECT_EQ(first.attributes.size(), family.attributes.size()) << row.aten;
    for (size_t i = 0; i < family.inputs.size(); ++i) {
      const size_t output = i - first.inputs.size();
      EXPECT_EQ(family.inputs[i].name,
                (i < first.inputs.size() ? first.inputs[i] : first.outputs[output]).name);
    }
    SampleCall sample(row, TypeOf(row));
    const std::span<const Operand> inputs(sample.inputs);
    std::vector<Operand> found(first.outputs.size());
    const Call call = {.row = sizing,
                       .compute = sample.call.compute,
                       .outputs = found,
                       .inputs = inputs.first(first.inputs.size()),
                       .attributes = sample.call.attributes};
    ASSERT_TRUE(first.infer(call, found).ok()) << row.aten;
    for (size_t o = 0; o < found.size(); ++o)
      EXPECT_EQ(Describe(found[o]), Describe(inputs[first.inputs.size() + o])) << row.aten;
    for (size_t o = 0; o < family.outputs.size(); ++o) {
      if (!family.outputs[o].is(kSized)) continue;
      for (const int64_t size : {int64_t{0}, int64_t{1}}) {
        sample.outputs[o].sizes[0] = size;
        EXPECT_TRUE(CheckCall(sample.call).ok()) << row.aten << ": " << CheckCall(sample.call);
      }
      sample.outputs[o].sizes[0] = int64_t{1} << 40;
      EXPECT_FALSE(CheckCall(sample.call).ok()) << row.aten << " gives " << Describe(sample.outputs[o]);
    }
  }
}

// Inferred outputs pass the check, and other outputs do not. This property allows writing the two functions
// independently.
TEST(Family, InferredOutputsAndNoOthersPassTheCheck) {
  std::minstd_rand random(1);
  for (const Row& row : kRows) {
    const FamilyDescriptor& family = DescriptorOf(row);
    if (family.infer == nullptr || &family == &kMapFamily) continue;
    for (int round = 0; round < 200; ++round) {
      SampleCall sample(row, TypeOf(row));
      for (Operand& input : sample.inputs) {  // random sizes, some of which fit together
        for (int d = 0; d < input.rank; ++d)
          if (random() % 4 == 0) input.sizes[d] = static_cast<int64_t>(random() % 4);
        input = SampleCall::OperandOf({{input.sizes.begin(), input.sizes.begin() + input.rank}, input.dtype});
      }
      std::vector<Operand> inferred(sample.outputs);
      if (!family.infer(sample.call, inferred).ok()) {
        EXPECT_FALSE(CheckCall(sample.call).ok()) << row.aten;
        continue;
      }
      for (Operand& out : inferred)
        out = SampleCall::OperandOf({{out.sizes.begin(), out.sizes.begin() + out.rank}, out.dtype});
      sample.outputs = inferred;
      sample.call.outputs = sample.outputs;
      if (!CheckCall(sample.call).ok()) continue;  // the inputs do not fit together
      Operand& out = sample.outputs[0];
      if (out.rank == (family.is_sized() ? 1 : 0)) continue;  // no size that is inferred
      out.sizes[out.rank - 1] += 1;
      EXPECT_FALSE(CheckCall(sample.call).ok()) << row.aten << " gives " << Describe(sample.call);
    }
  }
}

}  // namespace
}  // namespace xpud::ops
