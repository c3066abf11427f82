// Declared sizes: the daemon allocates no memory for them, and spends no time on them.
#include <fcntl.h>
#include <sys/mman.h>

#include "proto/transport/host_memory.h"
#include "tests/conformance/isolation/isolation_test.h"
#include "tests/conformance/isolation/op_calls.h"

namespace xpud::isolation {
namespace {

using ::testing::HasSubstr;

using HugeSizes = Isolation;

TEST_F(HugeSizes, OfBuffersAreRefusedWithoutBeingKept) {
  auto session = std::make_unique<HostileSession>(socket());
  uint32_t id = 0;
  for (int round = 0; round < 200; ++round) {
    for (int bit = 40; bit < 64; ++bit) {
      session->Put(Allocate({++id, 1}, uint64_t{1} << bit));
      if (round > 0) continue;
      EXPECT_THAT(TextOf(session->Settle()), HasSubstr("out of memory")) << "2^" << bit;
    }
  }
  EXPECT_FALSE(session->Settle().ok());
  for (int bit = 40; bit < 64; ++bit) session->Put(Reserve(uint64_t{1} << bit));
  EXPECT_TRUE(session->Settle().ok()) << "what is asked for is refused in its answer";
  session.reset();
  ExpectAsBefore();
}

// A session may hold memory that it never touches; the daemon does not touch it either.
TEST_F(HugeSizes, ThatAreAllowedTakeNoMemoryUntilTheyAreUsed) {
  auto session = std::make_unique<HostileSession>(socket());
  session->Put(Allocate({1, 1}, session->welcome().devices[0].total_memory / 2));
  ASSERT_TRUE(session->Settle().ok());
  innocent_.ExpectUnharmed();
  EXPECT_LE(Vitals::Of(daemon_).resident_bytes, before_.resident_bytes + 8 * kMiB);
}

// With strides of 0 a view can be larger than any memory; an op on it would occupy the device for hours.
TEST_F(HugeSizes, OfViewsThatRepeatTheirElementsAreRefusedAtEveryOperand) {
  auto session = std::make_unique<HostileSession>(socket());
  PutOperands(*session);
  const auto grow = [](View& view) {
    const auto size = std::find(view.sizes.begin(), view.sizes.end(), 2);
    if (size == view.sizes.end()) return false;
    *size = uint64_t{1} << 48;  // more would overflow, which ends the session
    view.strides.assign(view.sizes.size(), 0);
    return true;
  };
  int refused = 0;
  for (const ops::Row& row : ops::kRows) {
    Call all = RightCall(row);
    bool any = false;
    for (size_t i = 0; i < all.operands().size(); ++i) {
      any |= grow(*all.operands()[i]);
      Call one = RightCall(row);
      if (!grow(*one.operands()[i])) continue;
      session->Put(one.bytes());
      EXPECT_FALSE(session->Settle().ok()) << row.aten << " operand " << i;
      ++refused;
    }
    if (!any) continue;
    session->Put(all.bytes());
    EXPECT_FALSE(session->Settle().ok()) << row.aten;
  }
  EXPECT_FALSE(session->closed());
  EXPECT_GT(refused, 300);
  session.reset();
  ExpectAsBefore(kOfKernels);
}

TEST_F(HugeSizes, OfOpsWhoseShapesFitAreRefusedToo) {
  auto session = std::make_unique<HostileSession>(socket());
  PutOperands(*session);
  const auto repeated = [](uint32_t buffer, std::vector<uint64_t> sizes) {
    const std::vector<uint64_t> strides(sizes.size(), 0);
    return TensorView({buffer, 1}, std::move(sizes), ops::DType::kFloat32, 0, strides);
  };
  const auto refusal = [&](const Call& call) {
    session->Put(call.bytes());
    return TextOf(session->Settle());
  };
  const uint64_t large = uint64_t{1} << 50;
  for (const char* op : {"amax", "neg"}) {
    Call call = RightCall(ops::RowOf(op));
    call.inputs = {repeated(2, {large})};
    call.outputs = {op == std::string_view("neg") ? repeated(1, {large}) : TensorView({1, 1}, {1})};
    EXPECT_THAT(refusal(call), HasSubstr("would take more than the")) << op;
  }
  // Valid views whose products would take a device more than a day.
  const uint64_t side = 1 << 16, length = 1 << 26;
  Call product = RightCall(ops::RowOf("mm"));
  product.outputs = {repeated(1, {side, side})};
  product.inputs = {repeated(2, {side, side}), repeated(3, {side, side}), View{}};
  EXPECT_THAT(refusal(product), HasSubstr("operations"));
  Call attention = RightCall(ops::RowOf("_scaled_dot_product_fused_attention_overrideable"));
  for (View* view : attention.operands()) *view = repeated(1, {1, 1, length, 8});
  attention.outputs[1] = attention.inputs[3] = View{};
  EXPECT_THAT(refusal(attention), HasSubstr("operations"));
  Call backward = RightCall(ops::RowOf("xpud::attention_backward"));
  for (View* view : backward.operands()) *view = repeated(1, {1, 1, length, 8});
  backward.inputs[5] = repeated(1, {1, 1, length});
  backward.inputs[6] = View{};
  EXPECT_THAT(refusal(backward), HasSubstr("operations"));
  session.reset();
  ExpectAsBefore();
}

TEST_F(HugeSizes, OfHostMemoryAreMeasured) {
  if (IsRemote()) GTEST_SKIP() << "a network has no memory in common";
  constexpr uint64_t kTiB = uint64_t{1} << 40;
  UniqueFd hollow(memfd_create("hollow", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(hollow.get(), kTiB), 0);
  ASSERT_EQ(fcntl(hollow.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  const UniqueFd small = *transport::CreateHostMemory(1 << 20);
  auto session = std::make_unique<HostileSession>(socket());
  for (const auto& [fd, bytes] :
       std::initializer_list<std::pair<int, uint64_t>>{{hollow.get(), kTiB},
                                                       {small.get(), kTiB},
                                                       {small.get(), uint64_t{1} << 63},
                                                       {small.get(), 0 - kTiB}}) {
    const transport::Request message = {transport::RequestKind::kShareMemory, 1, bytes, 1};
    ASSERT_TRUE(
        transport::SendMessage(session->socket(), std::as_bytes(std::span(&message, 1)), {&fd, 1}).ok());
    transport::Answer answer;
    ASSERT_TRUE(
        transport::ReceiveMessage(session->socket(), std::as_writable_bytes(std::span(&answer, 1))).ok());
    EXPECT_EQ(answer.code, static_cast<uint32_t>(absl::StatusCode::kInvalidArgument)) << answer.text;
  }
  session.reset();
  ExpectAsBefore();
}

}  // namespace
}  // namespace xpud::isolation
