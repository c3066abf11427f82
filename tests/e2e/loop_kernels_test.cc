// Loop kernels through a real daemon: defined, called, refused, forgotten.
#include <bit>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/loops/codec.h"
#include "proto/loops/testing/builder.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/raw_session.h"
#include "xpud/tensor.h"

namespace xpud::e2e {
namespace {

using loops::DType;
using loops::Function;
using loops::Role;
using loops::testing::BodyBuilder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Flags = std::vector<std::string>;

// One at a time: a gateway's token is in the environment.
DaemonProcess& Daemon(const Flags& flags = {}) {
  static std::optional<DaemonProcess> daemon;
  static Flags flags_of_daemon;
  if (!daemon || flags != flags_of_daemon) daemon.emplace(flags);
  flags_of_daemon = flags;
  return *daemon;
}

// out = in * scalar, of size 0 elements.
loops::Kernel Scaled() {
  BodyBuilder b;
  const uint32_t i = b.Dimension(b.Size(0));
  const uint32_t scalar = b.Make({.kind = loops::StatementKind::kScalar, .operand = 1});
  b.Store(2, i, b.Call(Function::mul, DType::kFloat32, b.Load(0, i), scalar));
  return {.operands = {{DType::kFloat32, Role::kRead},
                       {DType::kFloat32, Role::kScalar},
                       {DType::kFloat32, Role::kWritten}},
          .sizes = 1,
          .bodies = {b.body}};
}

// inout += in, of size 0 elements.
loops::Kernel Accumulated() {
  BodyBuilder b;
  const uint32_t i = b.Dimension(b.Size(0));
  b.Store(1, i, b.Call(Function::add, DType::kFloat32, b.Load(0, i), b.Load(1, i)));
  return {.operands = {{DType::kFloat32, Role::kRead}, {DType::kFloat32, Role::kUpdated}},
          .sizes = 1,
          .bodies = {b.body}};
}

// Fails where in is not positive.
loops::Kernel Asserted() {
  BodyBuilder b;
  const uint32_t i = b.Dimension(b.Size(0));
  const uint32_t x = b.Load(0, i);
  const uint32_t positive = b.Call(Function::lt, DType::kFloat32, b.Real(0), x);
  b.Make({.kind = loops::StatementKind::kAssert, .values = {positive, loops::kNone, loops::kNone}});
  b.Store(1, i, x);
  return {.operands = {{DType::kFloat32, Role::kRead}, {DType::kFloat32, Role::kWritten}},
          .sizes = 1,
          .bodies = {b.body}};
}

class LoopKernels : public ::testing::TestWithParam<Flags> {
 protected:
  LoopKernel Define(const loops::Kernel& kernel, std::string_view name) const {
    const std::string bytes = loops::Encode(kernel);
    absl::StatusOr<LoopKernel> made = queue_.DefineKernel(std::as_bytes(std::span(bytes)), name);
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  absl::Status Call(uint32_t id, const std::vector<TensorRef>& outputs, const std::vector<TensorRef>& inputs,
                    const std::vector<int64_t>& sizes) const {
    std::vector<ops::Number> attributes = {ops::Number::Integer(id),
                                           ops::Number::Integer(static_cast<int64_t>(sizes.size()))};
    for (const int64_t size : sizes) attributes.push_back(ops::Number::Integer(size));
    const uint16_t lists[] = {static_cast<uint16_t>(outputs.size()), static_cast<uint16_t>(inputs.size())};
    return queue_.Execute({&ops::RowOf("xpud::loop"), DType::kFloat32, outputs, inputs, attributes, lists});
  }
  Tensor Upload(const std::vector<float>& values) const {
    return *Tensor::FromHost(queue_, std::span<const float>(values), {static_cast<int64_t>(values.size())});
  }
  Tensor Upload(std::span<const std::byte> bytes, DType type, int64_t size) const {
    Tensor tensor = *Tensor::Empty(queue_, type, {size});
    EXPECT_TRUE(queue_.Upload(bytes, tensor.ref().buffer, 0).ok());
    return tensor;
  }
  Tensor Empty(int64_t size) const { return *Tensor::Empty(queue_, DType::kFloat32, {size}); }
  static TensorRef Scalar(double value) {
    return TensorRef::FromNumber(ops::Number::Real(value), DType::kFloat32);
  }

  std::unique_ptr<Session> session_ = Daemon(GetParam()).Connect();
  Queue queue_ = session_->DefaultQueue(0);
};

TEST_P(LoopKernels, AreDefinedOnceAndCalledWithAnySizes) {
  const LoopKernel kernel = Define(Scaled(), "scaled");
  const Tensor x = Upload({1, 2, 3}), y = Empty(3), z = Empty(2);
  for (int round = 1; round <= 3; ++round) {
    ASSERT_TRUE(Call(kernel.id(), {y.ref()}, {x.ref(), Scalar(round)}, {3}).ok());
    EXPECT_THAT(*y.ToFloats(), ElementsAre(round, 2 * round, 3 * round));
    ASSERT_TRUE(Call(kernel.id(), {z.ref()}, {x.ref(), Scalar(10)}, {2}).ok());
    EXPECT_THAT(*z.ToFloats(), ElementsAre(10, 20));
  }
}

TEST_P(LoopKernels, SoftmaxOfRowsIsRight) {
  const LoopKernel kernel = Define(loops::testing::Softmax(), "softmax");
  const std::vector<uint16_t> rows = {0, 0x3f80, 0x4000, 0, 0, 0};  // bf16: 0 1 2, 0 0 0
  const Tensor x = Upload(std::as_bytes(std::span(rows)), DType::kBFloat16, 6);
  const Tensor y = *Tensor::Empty(queue_, DType::kBFloat16, {6});
  ASSERT_TRUE(Call(kernel.id(), {y.ref()}, {x.ref()}, {2, 3}).ok());
  std::vector<uint16_t> out(6);
  const absl::Status status = y.ToHost(std::as_writable_bytes(std::span(out)));
  ASSERT_TRUE(status.ok()) << status;
  const auto value = [&](size_t i) { return std::bit_cast<float>(static_cast<uint32_t>(out[i]) << 16); };
  const float sum = 1 + std::exp(1.0f) + std::exp(2.0f);
  EXPECT_NEAR(value(0), 1 / sum, 2e-3);
  EXPECT_NEAR(value(2), std::exp(2.0f) / sum, 4e-3);
  EXPECT_NEAR(value(4), 1.0 / 3, 2e-3);
}

TEST_P(LoopKernels, ADefinitionThatIsRefusedSaysWhyAndSoDoItsCalls) {
  loops::Kernel wrong = Scaled();
  wrong.bodies[0].statements[1].operand = 9;
  const LoopKernel kernel = Define(wrong, "wrong");
  const absl::Status refused = queue_.Synchronize();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("loop kernel wrong: "));
  EXPECT_THAT(refused.message(), HasSubstr("statement 1"));
  const Tensor x = Upload({1, 2, 3}), y = Empty(3);
  ASSERT_TRUE(Call(kernel.id(), {y.ref()}, {x.ref(), Scalar(1)}, {3}).ok());
  const absl::Status called = queue_.Synchronize();
  EXPECT_THAT(called.message(), HasSubstr("loop kernel wrong(float32[3], "));
  EXPECT_THAT(called.message(), HasSubstr("statement 1"));
  EXPECT_THAT(y.ToFloats().status().message(), HasSubstr("statement 1")) << "the output is poisoned";
  const auto garbage = queue_.DefineKernel(std::as_bytes(std::span("no kernel")), "garbage");
  EXPECT_TRUE(garbage.ok());
  EXPECT_THAT(queue_.Synchronize().message(), HasSubstr("loop kernel garbage: "));
}

TEST_P(LoopKernels, CallsOfWhatIsNotDefinedOrDoesNotFitAreRefused) {
  const Tensor x = Upload({1, 2, 3}), y = Empty(3);
  ASSERT_TRUE(Call(7, {y.ref()}, {x.ref(), Scalar(1)}, {3}).ok());
  EXPECT_THAT(queue_.Synchronize().message(), HasSubstr("loop kernel 7 is not defined"));
  const LoopKernel kernel = Define(Scaled(), "scaled");
  ASSERT_TRUE(Call(kernel.id(), {y.ref()}, {x.ref()}, {3}).ok());
  EXPECT_THAT(queue_.Synchronize().message(), HasSubstr("loop kernel scaled(float32[3]): "));
  ASSERT_TRUE(Call(kernel.id(), {y.ref()}, {x.ref(), Scalar(1)}, {3, 4}).ok());
  EXPECT_FALSE(queue_.Synchronize().ok());
  ASSERT_TRUE(Call(kernel.id(), {y.ref()}, {x.ref(), Scalar(1)}, {3}).ok());
  EXPECT_TRUE(queue_.Synchronize().ok());
}

TEST_P(LoopKernels, AnUpdatedOperandIsReadAndAWrittenOneIsNot) {
  const LoopKernel scaled = Define(Scaled(), "scaled"), accumulated = Define(Accumulated(), "accumulated");
  const Tensor x = Upload({1, 2, 3}), y = Empty(3);
  ASSERT_TRUE(Call(4000, {y.ref()}, {x.ref(), Scalar(1)}, {3}).ok());
  EXPECT_THAT(queue_.Synchronize().message(), HasSubstr("loop kernel 4000 is not defined"));
  ASSERT_TRUE(Call(accumulated.id(), {y.ref()}, {x.ref()}, {3}).ok());
  EXPECT_THAT(queue_.Synchronize().message(), HasSubstr("loop kernel 4000 is not defined"));
  ASSERT_TRUE(Call(scaled.id(), {y.ref()}, {x.ref(), Scalar(2)}, {3}).ok());
  EXPECT_THAT(*y.ToFloats(), ElementsAre(2, 4, 6));
  ASSERT_TRUE(Call(accumulated.id(), {y.ref()}, {x.ref()}, {3}).ok());
  EXPECT_THAT(*y.ToFloats(), ElementsAre(3, 6, 9));
}

TEST_P(LoopKernels, ABadIndexNamesKernelAndStatement) {
  const LoopKernel kernel = Define(loops::testing::MaskedGather(), "gather");
  const Tensor table = Upload({10, 20, 30}), out = Empty(2);
  const std::vector<uint8_t> both = {1, 1}, first = {1, 0};
  const auto mask = [&](const std::vector<uint8_t>& values) {
    return Upload(std::as_bytes(std::span(values)), DType::kBool, 2);
  };
  const auto index = [&](const std::vector<int64_t>& values) {
    return *Tensor::FromHost(queue_, std::span<const int64_t>(values), {2});
  };
  const Tensor right = index({2, -3}), wrong = index({1, 7}), all = mask(both), some = mask(first);
  ASSERT_TRUE(Call(kernel.id(), {out.ref()}, {table.ref(), right.ref(), all.ref()}, {2, 3}).ok());
  EXPECT_THAT(*out.ToFloats(), ElementsAre(30, 10));
  ASSERT_TRUE(Call(kernel.id(), {out.ref()}, {table.ref(), wrong.ref(), some.ref()}, {2, 3}).ok());
  EXPECT_THAT(*out.ToFloats(), ElementsAre(20, 0)) << "the bad index is masked";
  ASSERT_TRUE(Call(kernel.id(), {out.ref()}, {table.ref(), wrong.ref(), all.ref()}, {2, 3}).ok());
  const absl::Status status = queue_.Synchronize();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(status.message(), HasSubstr("index 7 is out of bounds (loop kernel gather, statement 4)"));
  EXPECT_THAT(*Add(table, table)->ToFloats(), ElementsAre(20, 40, 60));
}

TEST_P(LoopKernels, AFailedAssertionNamesKernelAndStatement) {
  const LoopKernel kernel = Define(Asserted(), "positive");
  const Tensor good = Upload({1, 2}), bad = Upload({1, -2}), out = Empty(2);
  ASSERT_TRUE(Call(kernel.id(), {out.ref()}, {good.ref()}, {2}).ok());
  EXPECT_THAT(*out.ToFloats(), ElementsAre(1, 2));
  ASSERT_TRUE(Call(kernel.id(), {out.ref()}, {bad.ref()}, {2}).ok());
  EXPECT_EQ(queue_.Synchronize(), absl::FailedPreconditionError(
                                      "a device-side assertion failed (loop kernel positive, statement 3)"));
}

TEST_P(LoopKernels, AreCompiledBeforeTheFirstCallIfItIsNamed) {
  // Each has numbers of its own, so that it is on nobody's disk.
  std::random_device random;
  const auto fresh = [&] {
    BodyBuilder b;
    const auto number = [&] { return b.Real(static_cast<double>(random())); };
    const uint32_t i = b.Dimension(b.Size(0));
    const uint32_t sum = b.Call(Function::add, DType::kFloat32, b.Load(0, i), number());
    b.Store(1, i, b.Call(Function::mul, DType::kFloat32, sum, number()));
    return loops::Kernel{.operands = {{DType::kFloat32, Role::kRead}, {DType::kFloat32, Role::kWritten}},
                         .sizes = 1,
                         .bodies = {b.body}};
  };
  const auto made = [&] { return Daemon(GetParam()).StatusOf("compiled"); };
  constexpr int kKernels = 5;
  const int64_t before = made();
  std::vector<LoopKernel> kernels;
  const std::vector<int64_t> sizes = {3}, elements = {3, 3};
  for (int i = 0; i < kKernels; ++i) {
    kernels.push_back(Define(fresh(), "fresh"));
    ASSERT_TRUE(queue_.PrepareKernel(kernels.back(), sizes, elements).ok());
  }
  ASSERT_TRUE(queue_.Synchronize().ok()) << "it waits for none of them";
  EXPECT_TRUE(Within(std::chrono::seconds(20), [&] { return made() == before + kKernels; }))
      << made() - before;
  const Tensor x = Upload({1, 2, 3}), y = Empty(3);
  for (const LoopKernel& kernel : kernels) {
    ASSERT_TRUE(Call(kernel.id(), {y.ref()}, {x.ref()}, {3}).ok());
    ASSERT_TRUE(queue_.PrepareKernel(kernel, sizes, elements).ok());
  }
  ASSERT_TRUE(queue_.Synchronize().ok());
  EXPECT_EQ(made(), before + kKernels) << "they were made for these calls";
}

TEST_P(LoopKernels, ACallThatIsNamedButNotAllowedHasNoEffect) {
  const LoopKernel kernel = Define(Scaled(), "scaled"),
                   gather = Define(loops::testing::MaskedGather(), "gather");
  using Numbers = std::vector<int64_t>;
  for (const auto& [sizes, elements] : {std::pair<Numbers, Numbers>{{-1}, {3, 1, 3}},
                                        {{}, {3, 1, 3}},
                                        {{3, 4}, {3, 1, 3}},
                                        {{3}, {}},
                                        {{3}, {3, 1}},
                                        {{3}, Numbers(200, 3)},
                                        {{INT64_MAX}, {3, 1, 3}},
                                        {{3}, {0, 0, 0}},
                                        {{3}, {int64_t{1} << 56, 1, int64_t{1} << 56}}})
    EXPECT_TRUE(queue_.PrepareKernel(kernel, sizes, elements).ok());
  EXPECT_TRUE(queue_.PrepareKernel(gather, {}, {}).ok());
  EXPECT_TRUE(queue_.Synchronize().ok());
  const Tensor x = Upload({1, 2, 3}), y = Empty(3);
  ASSERT_TRUE(Call(kernel.id(), {y.ref()}, {x.ref(), Scalar(2)}, {3}).ok());
  EXPECT_THAT(*y.ToFloats(), ElementsAre(2, 4, 6));
  EXPECT_TRUE(absl::IsInvalidArgument(queue_.PrepareKernel(LoopKernel(), {}, {})));
  const auto garbage = queue_.DefineKernel(std::as_bytes(std::span("no kernel")), "garbage");
  EXPECT_TRUE(queue_.PrepareKernel(*garbage, {}, {}).ok());
  EXPECT_THAT(queue_.Synchronize().message(), HasSubstr("loop kernel garbage: "));
  EXPECT_TRUE(queue_.Synchronize().ok()) << "once, for its definition";
}

TEST_P(LoopKernels, ForgottenIdsAreUsedAgain) {
  const Tensor x = Upload({1, 2, 3}), y = Empty(3);
  uint32_t id = 0;
  for (int round = 1; round <= 3; ++round) {
    LoopKernel kernel = Define(Scaled(), "scaled " + std::to_string(round));
    if (id != 0) EXPECT_EQ(kernel.id(), id);
    id = kernel.id();
    ASSERT_TRUE(Call(id, {y.ref()}, {x.ref(), Scalar(round)}, {3}).ok());
    kernel.Forget();  // behind the call
    EXPECT_EQ(kernel.id(), 0u);
    EXPECT_THAT(*y.ToFloats(), ElementsAre(round, 2 * round, 3 * round));
  }
  ASSERT_TRUE(Call(id, {y.ref()}, {x.ref(), Scalar(1)}, {3}).ok());
  EXPECT_THAT(queue_.Synchronize().message(), HasSubstr("is not defined"));
}

TEST_P(LoopKernels, AreKnownByNameInProfiles) {
  const LoopKernel kernel = Define(Scaled(), "scaled_in_profile");
  const Tensor x = Upload({1, 2, 3}), y = Empty(3);
  const absl::Status started = session_->StartProfile(0);
  if (absl::IsUnimplemented(started)) GTEST_SKIP() << started;
  ASSERT_TRUE(Call(kernel.id(), {y.ref()}, {x.ref(), Scalar(1)}, {3}).ok());
  ASSERT_TRUE(session_->Synchronize(0).ok());
  const auto profile = session_->StopProfile(0);
  ASSERT_TRUE(profile.ok()) << profile.status();
  int calls = 0;
  for (const ProfiledCommand& command : profile->commands) {
    if (command.row != &ops::RowOf("xpud::loop")) continue;
    ++calls;
    EXPECT_EQ(profile->kernels[command.kernel], "scaled_in_profile");
  }
  EXPECT_EQ(calls, 1);
}

TEST_P(LoopKernels, MoreThanTheWireHasIdsForAreRefusedByTheClient) {
  const std::string bytes = loops::Encode(Scaled());
  std::vector<LoopKernel> kernels;
  for (uint32_t i = 0; i < wire::kMaxKernels; ++i) {
    auto made = queue_.DefineKernel(std::as_bytes(std::span(bytes)), "scaled");
    ASSERT_TRUE(made.ok()) << made.status();
    kernels.push_back(*std::move(made));
  }
  EXPECT_TRUE(
      absl::IsResourceExhausted(queue_.DefineKernel(std::as_bytes(std::span(bytes)), "one more").status()));
  EXPECT_TRUE(queue_.Synchronize().ok());
  const Tensor x = Upload({1, 2, 3}), y = Empty(3);
  ASSERT_TRUE(Call(kernels.back().id(), {y.ref()}, {x.ref(), Scalar(2)}, {3}).ok());
  EXPECT_THAT(*y.ToFloats(), ElementsAre(2, 4, 6));
  const std::vector<std::byte> large(wire::kMaxCommandBytes);
  EXPECT_TRUE(absl::IsInvalidArgument(queue_.DefineKernel(large, "large").status()));
}

INSTANTIATE_TEST_SUITE_P(Devices, LoopKernels,
                         ::testing::Values(Flags{},
                                           Flags{"--device", "cpu", "--executor", "thread", "--asynchronous"},
                                           Flags{"--executor", "process"}));

// Without bytes it is refused, and its id is in use.
wire::DefineKernelCommand Definition(uint32_t id, uint32_t bytes = 0) {
  return {HeaderOf<wire::DefineKernelCommand>(wire::CommandKind::kDefineKernel), id, bytes, 0, 0};
}
wire::ForgetKernelCommand Forget(uint32_t id) {
  return {HeaderOf<wire::ForgetKernelCommand>(wire::CommandKind::kForgetKernel), id, 0};
}

// `operands`: so many numbers of elements are promised.
wire::PrepareKernelCommand Preparation(uint32_t id, uint16_t operands = 0) {
  return {HeaderOf<wire::PrepareKernelCommand>(wire::CommandKind::kPrepareKernel), id, 0, operands};
}

TEST(LoopKernelBreaches, CloseTheirSession) {
  const std::vector<std::pair<std::function<void(RawSession&)>, const char*>> breaches = {
      {[](RawSession& h) { h.Send(Definition(0)); }, "a loop kernel's id 0; 1 to 4096 are allowed"},
      {[](RawSession& h) { h.Send(Definition(wire::kMaxKernels + 1)); }, "a loop kernel's id 4097"},
      {[](RawSession& h) { h.Send(Definition(~0u)); }, "a loop kernel's id 4294967295"},
      {[](RawSession& h) {
         h.Send(Definition(5));
         h.Send(Definition(5));
       },
       "with the id 5 of another"},
      {[](RawSession& h) { h.Send(Definition(1, 8)); }, "does not fit its command"},
      {[](RawSession& h) { h.Send(Preparation(3)); }, "loop kernel 3 was prepared, which is not defined"},
      {[](RawSession& h) { h.Send(Preparation(~0u)); }, "loop kernel 4294967295 was prepared"},
      {[](RawSession& h) {
         h.Send(Definition(3));
         h.Send(Preparation(3, 1));
       },
       "a command ends inside the sizes of a loop kernel's call"},
      {[](RawSession& h) { h.Send(Forget(3)); }, "loop kernel 3 was forgotten, which is not defined"},
      {[](RawSession& h) {
         h.Send(Definition(3));
         h.Send(Forget(3));
         h.Send(Forget(3));
       },
       "loop kernel 3 was forgotten, which is not defined"},
  };
  for (const auto& [breach, reason] : breaches) {
    RawSession hostile(Daemon().socket());
    breach(hostile);
    EXPECT_THAT(hostile.Fate(), HasSubstr(reason));
  }
  RawSession right(Daemon().socket());
  for (int round = 0; round < 3; ++round) {
    right.Send(Definition(wire::kMaxKernels));
    right.Send(Preparation(wire::kMaxKernels));
    right.Send(Forget(wire::kMaxKernels));
  }
  EXPECT_TRUE(right.Synchronize().ok());
  EXPECT_FALSE(right.transport().LastError(0).ok()) << "the definitions are refused";
  EXPECT_TRUE(right.transport().status().ok()) << right.transport().status();
}

}  // namespace
}  // namespace xpud::e2e
