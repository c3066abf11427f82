// Null handles, buffers without bytes and tensors without elements, at every operand of every op.
#include <algorithm>
#include "proto/ops/family.h"

#include "tests/conformance/isolation/isolation_test.h"
#include "tests/conformance/isolation/op_calls.h"

namespace xpud::isolation {
namespace {

using ::testing::HasSubstr;

constexpr wire::Handle kEmpty = {ops::kMaxOutputs + ops::kMaxInputs + 1, 1};  // after RightCall's

class Nothing : public Isolation {
 protected:
  Nothing() {
    PutOperands(*session_);
    session_->Put(Allocate(kEmpty, 0));
    EXPECT_TRUE(session_->Settle().ok());
  }
  absl::Status Do(const Call& call) {
    session_->Put(call.bytes());
    return session_->Settle();
  }
  std::unique_ptr<HostileSession> session_ = std::make_unique<HostileSession>(socket());
};

bool Runs(const ops::Row& row) { return row.family != ops::Family::kTest; }

TEST_F(Nothing, TheCallsThatTheOthersDifferFromAreAccepted) {
  for (const ops::Row& row : ops::kRows) {
    if (!Runs(row)) continue;
    const absl::Status status = Do(RightCall(row));
    EXPECT_TRUE(status.ok()) << row.aten << ": " << status;
  }
}

TEST_F(Nothing, ANullHandleIsAnErrorAtEveryOperand) {
  for (const ops::Row& row : ops::kRows) {
    const size_t operands = RightCall(row).operands().size();
    for (size_t i = 0; i < operands; ++i) {
      Call call = RightCall(row);
      View& view = *call.operands()[i];
      if (view.kind != wire::OperandKind::kTensor) continue;
      view.buffer = {0, 0};
      EXPECT_THAT(TextOf(Do(call)), HasSubstr("buffer that does not exist")) << row.aten << " operand " << i;
    }
  }
  session_.reset();
  ExpectAsBefore(kOfKernels);
}

TEST_F(Nothing, AnAbsentOperandIsAnErrorUnlessItIsOptional) {
  for (const ops::Row& row : ops::kRows) {
    const Call right = RightCall(row);
    for (size_t i = 0; i < right.outputs.size() + right.inputs.size(); ++i) {
      Call call = right;
      *call.operands()[i] = View{};
      const ops::FamilyDescriptor& family = ops::DescriptorOf(row);
      const bool optional = i < family.outputs.size() && family.outputs[i].is(ops::kOptional);
      const bool may_lack =
          family.lists == 0 && (optional || i + row.optional >= right.outputs.size() + row.inputs);
      const absl::Status status = Do(call);
      EXPECT_EQ(status.ok(), may_lack && Runs(row)) << row.aten << " operand " << i << ": " << status;
    }
    Call call = right;
    call.inputs.clear();
    const auto is_list = [](const ops::Parameter& output) { return output.is(ops::kList); };
    const auto of_outputs = std::ranges::count_if(ops::DescriptorOf(row).outputs, is_list);
    if (!call.lists.empty()) std::fill(call.lists.begin() + of_outputs, call.lists.end(), 0);
    EXPECT_FALSE(Do(call).ok()) << row.aten << " without inputs";
    if (!call.lists.empty()) continue;  // breaks the protocol: 05_lengths_test.cc
    call = right;
    call.outputs.clear();
    EXPECT_FALSE(Do(call).ok()) << row.aten << " without outputs";
  }
}

TEST_F(Nothing, AViewOfSomethingInABufferWithoutBytesIsAnError) {
  for (const ops::Row& row : ops::kRows) {
    const size_t operands = RightCall(row).operands().size();
    for (size_t i = 0; i < operands; ++i) {
      Call call = RightCall(row);
      View& view = *call.operands()[i];
      if (view.kind != wire::OperandKind::kTensor) continue;
      view.buffer = kEmpty;
      EXPECT_THAT(TextOf(Do(call)), HasSubstr("leaves its buffer of 0 bytes"))
          << row.aten << " operand " << i;
    }
  }
}

// If the shapes still fit, there is nothing to do, or a value for no elements; otherwise it is an error.
TEST_F(Nothing, TensorsWithoutElementsAreHarmlessAtEveryOperand) {
  int accepted = 0, refused = 0;
  const auto count = [&](const absl::Status& status) { ++(status.ok() ? accepted : refused); };
  for (const ops::Row& row : ops::kRows) {
    const size_t operands = RightCall(row).operands().size();
    for (size_t size_at = 0; size_at < 4; ++size_at) {
      Call all = RightCall(row);
      for (size_t i = 0; i < operands; ++i) {
        Call one = RightCall(row);
        for (Call* call : {&one, &all}) {
          View& view = *call->operands()[i];
          if (size_at < view.sizes.size()) view.sizes[size_at] = 0;
          view.buffer = kEmpty;
        }
        count(Do(one));
      }
      count(Do(all));
    }
    // Everything that is 2, or 3, becomes 0: shapes fit.
    for (const uint64_t size : {2, 3}) {
      Call call = RightCall(row);
      for (View* view : call.operands())
        std::replace(view->sizes.begin(), view->sizes.end(), size, uint64_t{0});
      count(Do(call));
    }
  }
  EXPECT_GT(accepted, 200);
  EXPECT_GT(refused, 200);
}

TEST_F(Nothing, CopiesOfNothingAreHarmlessWhereverTheyPoint) {
  const uint64_t far = uint64_t{1} << 40;
  for (const uint64_t offset : {uint64_t{0}, uint64_t{1}, far, ~uint64_t{0}}) {
    session_->Put(UploadInline(kEmpty, offset, {}));
    session_->Put(Upload(kEmpty, offset, {0, 0, 0}, 0));
    session_->Put(Download(kEmpty, offset, {0, 0, 0}, 0));
    session_->Put(Copy(kEmpty, offset, {1, 1}, 0, 0));
    session_->Put(Copy({1, 1}, kOperandBytes, kEmpty, offset, 0));
    EXPECT_EQ(session_->Settle().ok(), offset == 0) << offset;
  }
  session_->Put(Free(kEmpty));
  EXPECT_TRUE(session_->Settle().ok());
}

}  // namespace
}  // namespace xpud::isolation
