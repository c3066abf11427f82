// Indices out of range in every op of the table that reads indices.
#include <limits>

#include "proto/ops/family.h"
#include "tests/conformance/isolation/isolation_test.h"
#include "tests/conformance/isolation/op_calls.h"

namespace xpud::isolation {
namespace {

using ops::DType;
using ::testing::HasSubstr;

constexpr uint32_t kGuards = 16;
constexpr uint32_t kOperands = ops::kMaxOutputs + ops::kMaxInputs;

class Indices : public Isolation {
 protected:
  // Outputs hold zeros, inputs ones, and guards among them zeros.
  void Prepare(const Call& call) {
    const std::vector<float> ones(kOperandBytes / 8, 1.0f);
    const std::vector<std::byte> zeros(kOperandBytes / 2);
    for (uint32_t id = 1; id <= kOperands; ++id) {
      const bool input = id > call.outputs.size();
      for (const uint64_t at : {uint64_t{0}, kOperandBytes / 2})
        session_->Put(UploadInline({id, 1}, at, input ? std::as_bytes(std::span(ones)) : std::span(zeros)));
    }
    const ops::FamilyDescriptor& family = ops::DescriptorOf(*call.row);
    for (size_t i = 0; i < std::min(call.inputs.size(), family.inputs.size()); ++i) {
      if (family.inputs[i].is(ops::kIndices)) session_->Put(UploadInline(call.inputs[i].buffer, 0, zeros));
    }
  }
  void SetUp() override {
    PutOperands(*session_);
    for (uint32_t id = kOperands + 1; id <= kOperands + kGuards; ++id) {
      session_->Put(Allocate({id, 1}, kOperandBytes));
      for (const uint64_t at : {uint64_t{0}, kOperandBytes / 2})
        session_->Put(UploadInline({id, 1}, at, std::vector<std::byte>(kOperandBytes / 2)));
    }
    ASSERT_TRUE(session_->Settle().ok());
  }
  template <typename T>
  void SetIndices(const View& view, T ordinary, size_t at, T value) {
    std::vector<T> indices(view.sizes[0] * (view.sizes.size() > 1 ? view.sizes[1] : 1), ordinary);
    indices[at == 0 ? 0 : indices.size() - 1] = value;
    session_->Put(UploadInline(view.buffer, 0, std::as_bytes(std::span(indices))));
  }
  void ExpectZeros(wire::Handle buffer, uint64_t from, std::string_view op) {
    session_->Put(Download(buffer, 0, {0, 0, 0}, kOperandBytes));
    ASSERT_TRUE(session_->Settle().ok());
    for (uint64_t i = from; i < kOperandBytes; ++i)
      ASSERT_EQ(session_->staging()[i], std::byte{0})
          << op << " wrote byte " << i << " of buffer " << buffer.id;
  }

  std::unique_ptr<HostileSession> session_ = std::make_unique<HostileSession>(socket());
};

std::vector<ops::Operand> OperandsOf(const std::vector<View>& views) {
  std::vector<ops::Operand> operands(views.size());
  for (size_t i = 0; i < views.size(); ++i) {
    operands[i].rank = static_cast<uint8_t>(views[i].sizes.size());
    std::copy(views[i].sizes.begin(), views[i].sizes.end(), operands[i].sizes.begin());
  }
  return operands;
}

// The operand that holds indices, and the number of valid values.
struct Chosen {
  View* index;
  int64_t choices;
};
Chosen IndexOf(Call& call) {
  const ops::FamilyDescriptor& family = ops::DescriptorOf(*call.row);
  for (size_t i = 0; i < family.attributes.size();
       ++i) {  // the row that is skipped, where there is one; -1 would be none
    if (family.attributes[i].name == "padding_idx") call.attributes[i] = ops::Number::Integer(1);
  }
  std::vector<ops::Operand> outputs = OperandsOf(call.outputs), inputs = OperandsOf(call.inputs);
  const int64_t limit = family.index_limit({call.row, call.compute, outputs, inputs, call.attributes});
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (family.inputs[i].is(ops::kIndices)) return {&call.inputs[i], limit};
  }
  return {nullptr, 0};
}

uint64_t BytesOf(const View& view) {
  uint64_t bytes = ops::SizeOf(view.dtype);
  for (const uint64_t size : view.sizes) bytes *= size;
  return bytes;
}

TEST_F(Indices, OutOfRangeAreErrorsOfTheirQueueAndTouchNothing) {
  constexpr int64_t kLow32 = std::numeric_limits<int32_t>::min(),
                    kHigh32 = std::numeric_limits<int32_t>::max();
  int errors = 0;
  for (const ops::Row& row : ops::kRows) {
    if (!ops::DescriptorOf(row).reads_indices()) continue;
    for (const DType type : {DType::kInt64, DType::kInt32}) {
      Call call = RightCall(row);
      const auto [index, choices] = IndexOf(call);
      ASSERT_NE(index, nullptr);
      index->dtype = type;
      for (const int64_t bad :
           {choices, choices + 1, int64_t{-1}, -choices, kLow32, kHigh32, int64_t{1} << 20, int64_t{1} << 31,
            int64_t{1} << 32, (int64_t{1} << 32) + 1, -(int64_t{1} << 32),
            std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
        if (type == DType::kInt32 && (bad < kLow32 || bad > kHigh32)) continue;
        for (const size_t at : {0, 1}) {
          Prepare(call);
          if (type == DType::kInt64) {
            SetIndices<int64_t>(*index, 0, at, bad);
          } else {
            SetIndices<int32_t>(*index, 0, at, static_cast<int32_t>(bad));
          }
          session_->Put(call.bytes());
          const absl::Status status = session_->Settle();
          EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange)
              << row.aten << " index " << bad << ": " << status;
          EXPECT_THAT(TextOf(status), HasSubstr(" is out of range in "));
          ++errors;
          for (const View& out : call.outputs) ExpectZeros(out.buffer, BytesOf(out), row.aten);
        }
      }
      // The next call works.
      Prepare(call);
      SetIndices<int64_t>(*index, 0, 0, 0);
      session_->Put(call.bytes());
      EXPECT_TRUE(session_->Settle().ok()) << row.aten;
    }
  }
  EXPECT_GT(errors, 150);
  for (uint32_t id = kOperands + 1; id <= kOperands + kGuards; ++id) ExpectZeros({id, 1}, 0, "something");
  session_.reset();
  ExpectAsBefore(kOfKernels);
}

// A client may name any size for a result whose size it should have read, and any counts.
TEST_F(Indices, ResultsOfAMadeUpSizeStayWithinTheirOutputs) {
  for (const ops::Row& row : ops::kRows) {
    if (!ops::DescriptorOf(row).is_sized()) continue;
    int accepted = 0;
    for (const uint64_t size :
         {uint64_t{0}, uint64_t{1}, uint64_t{3}, uint64_t{6}, uint64_t{7}, uint64_t{1} << 40}) {
      for (const int64_t end : {0, 1, 3, 6}) {
        Call call = RightCall(row);
        call.outputs[0].sizes[0] = size;
        if (size > 100) call.outputs[0].strides = {0, 0};
        Prepare(call);
        SetIndices<int64_t>(call.inputs.back(), 0, 0, end);
        session_->Put(call.bytes());
        const absl::Status status = session_->Settle();
        const auto wanted = size > 6                           ? absl::StatusCode::kInvalidArgument
                            : end > static_cast<int64_t>(size) ? absl::StatusCode::kOutOfRange
                                                               : absl::StatusCode::kOk;
        EXPECT_EQ(status.code(), wanted) << row.aten << " of size " << size << ": " << status;
        accepted += status.ok() ? 1 : 0;
        ExpectZeros(call.outputs[0].buffer, size > 6 ? 0 : BytesOf(call.outputs[0]), row.aten);
      }
    }
    EXPECT_EQ(accepted, 10) << row.aten;
  }
  for (uint32_t id = kOperands + 1; id <= kOperands + kGuards; ++id) ExpectZeros({id, 1}, 0, "something");
  session_.reset();
  ExpectAsBefore(kOfKernels);
}

}  // namespace
}  // namespace xpud::isolation
