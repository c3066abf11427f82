// What a well-behaved client relies on: ops, queues, events and errors, through a real daemon and the real
// driver.
#include <cmath>
#include <numeric>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "tests/e2e/daemon_process.h"
#include "xpud/tensor.h"

namespace xpud::e2e {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

DaemonProcess& Daemon() {
  static DaemonProcess daemon;
  return daemon;
}

class Compute : public ::testing::Test {
 protected:
  std::unique_ptr<Session> session_ = Daemon().Connect();
  Queue queue_ = session_->DefaultQueue(0);
  Tensor Upload(std::vector<float> values, std::vector<int64_t> sizes) {
    return *Tensor::FromHost(queue_, std::span<const float>(values), std::move(sizes));
  }
};

TEST_F(Compute, TheDeviceIsDescribed) {
  ASSERT_EQ(session_->devices().size(), 1u);
  EXPECT_THAT(session_->devices()[0].kind, AnyOf("cpu", "gpu"));
  EXPECT_GT(session_->devices()[0].total_memory, uint64_t{1} << 28);
  EXPECT_GE(session_->devices()[0].compute_units, 1u);
}

TEST_F(Compute, AddBroadcasts) {
  const Tensor a = Upload({1, 2, 3, 4, 5, 6}, {2, 3}), b = Upload({10, 20, 30}, {3});
  EXPECT_THAT(*Add(a, b)->ToFloats(), ElementsAre(11, 22, 33, 14, 25, 36));
}

TEST_F(Compute, ChainsOfOpsRunInOrder) {
  Tensor x = Upload({1}, {1});
  for (int i = 0; i < 2000; ++i) x = *Add(x, Upload({1}, {1}));
  EXPECT_THAT(*x.ToFloats(), ElementsAre(2001));
}

TEST_F(Compute, MatmulOfATransposedView) {
  const Tensor a = Upload({1, 2, 3, 4, 5, 6}, {2, 3}), b = Upload({1, 0, 1, 0, 1, 0}, {2, 3});
  EXPECT_THAT(*Matmul(a, b.Transpose(0, 1))->ToFloats(), ElementsAre(4, 2, 10, 5));
}

TEST_F(Compute, ReductionsAndSoftmax) {
  const Tensor a = Upload({1, 2, 3, 4}, {2, 2});
  EXPECT_THAT(*Sum(a, 1)->ToFloats(), ElementsAre(3, 7));
  const auto rows = *Softmax(a, 1)->ToFloats();
  EXPECT_NEAR(rows[0] + rows[1], 1, 1e-6);
  EXPECT_NEAR(rows[1] / rows[0], std::exp(1.0f), 1e-4);
}

TEST_F(Compute, LargeTransfersArriveWhole) {
  std::vector<float> values(20 << 20);  // 80 MiB: more than the staging memory
  std::iota(values.begin(), values.end(), 0.0f);
  const Tensor a = Upload(values, {static_cast<int64_t>(values.size())});
  const auto back = a.ToFloats();
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(*back == values);
}

TEST_F(Compute, ABufferCanBeEmpty) {
  const Tensor a = Upload({}, {0, 3});
  EXPECT_TRUE(Add(a, a)->ToFloats()->empty());
}

TEST_F(Compute, AnotherQueueWaitsForAnEvent) {
  Queue second = *session_->CreateQueue(0);
  Tensor x = Upload({1}, {1});
  for (int i = 0; i < 500; ++i) x = *Mul(x, 1.0);
  ASSERT_TRUE(second.Wait(*queue_.Record()).ok());
  std::vector<float> out(1);
  ASSERT_TRUE(second.Download(x.ref().buffer, 0, std::as_writable_bytes(std::span(out))).ok());
  EXPECT_THAT(out, ElementsAre(1));
  EXPECT_TRUE(session_->DestroyQueue(second).ok());
}

TEST_F(Compute, EventsMeasureTime) {
  const Event start = *queue_.Record(/*timing=*/true);
  Tensor x = Upload(std::vector<float>(1 << 20, 1), {1 << 20});
  for (int i = 0; i < 10; ++i) x = *Mul(x, 2.0);
  const Event end = *queue_.Record(/*timing=*/true);
  ASSERT_TRUE(end.Synchronize().ok());
  EXPECT_GT(*end.ElapsedNanoseconds(start), 1000);
}

TEST_F(Compute, AnErrorSurfacesAtTheNextSyncWithTheOpAndOnlyOnce) {
  const Tensor a = Upload({1, 2}, {2});
  TensorRef outside = a.ref();
  outside.offset = 4;  // the view would leave the buffer by one element
  const TensorRef out = a.ref();
  const TensorRef inputs[] = {outside};
  ASSERT_TRUE(queue_.Execute({&ops::RowOf("neg"), ops::DType::kFloat32, {&out, 1}, inputs, {}}).ok());
  EXPECT_THAT(queue_.Synchronize().message(),
              HasSubstr("neg: a view of 2 elements from element 1 leaves its buffer of 8 bytes"));
  EXPECT_TRUE(queue_.Synchronize().ok());
  EXPECT_THAT(*a.ToFloats(), ElementsAre(1, 2)) << "the target of a refused in-place op keeps its contents";
}

TEST_F(Compute, AnElementOfAListFailsAlone) {
  const Tensor a = Upload({1, 2}, {2}), b = Upload({3, 4}, {2}), c = Upload({5, 6}, {2});
  const Tensor failed = *Tensor::Empty(queue_, ops::DType::kFloat32, {3});
  const TensorRef wrong = failed.ref(), in[] = {a.ref()};
  ASSERT_TRUE(queue_.Execute({&ops::RowOf("neg"), ops::DType::kFloat32, {&wrong, 1}, in, {}}).ok());
  const Tensor x = *Tensor::Empty(queue_, ops::DType::kFloat32, {2}),
               y = *Tensor::Empty(queue_, ops::DType::kFloat32, {3}),
               z = *Tensor::Empty(queue_, ops::DType::kFloat32, {2});
  const TensorRef outputs[] = {x.ref(), y.ref(), z.ref()};
  const TensorRef inputs[] = {b.ref(), failed.ref(), c.ref(), TensorRef::Immediate(10.0)};
  const ops::Number row = ops::Number::Integer(ops::RowOf("mul.Tensor").number);
  const uint16_t lists[] = {3, 3, 1, 0, 0, 0};
  ASSERT_TRUE(
      queue_.Execute({&ops::RowOf("xpud::foreach"), ops::DType::kFloat32, outputs, inputs, {&row, 1}, lists})
          .ok());
  EXPECT_THAT(queue_.Synchronize().message(), HasSubstr("does not broadcast"));
  EXPECT_THAT(*x.ToFloats(), ElementsAre(30, 40));
  EXPECT_THAT(*z.ToFloats(), ElementsAre(50, 60));
  EXPECT_THAT(y.ToFloats().status().message(), HasSubstr("does not broadcast"));
}

TEST_F(Compute, WhatFollowsFromAFailedOpFailsToo) {
  const Tensor a = Upload({1, 2}, {2}), fresh = *Tensor::Empty(queue_, ops::DType::kFloat32, {3});
  const TensorRef out = fresh.ref(), inputs[] = {a.ref()};
  ASSERT_TRUE(queue_.Execute({&ops::RowOf("neg"), ops::DType::kFloat32, {&out, 1}, inputs, {}}).ok());
  const Tensor next = *Mul(fresh, 2.0);
  EXPECT_THAT(next.ToFloats().status().message(), HasSubstr("does not broadcast"));
  EXPECT_THAT(next.ToFloats().status().message(), HasSubstr("does not broadcast"))
      << "a fresh output stays unusable, and each reader gets the reason";
  EXPECT_THAT(*Mul(a, 2.0)->ToFloats(), ElementsAre(2, 4));
}

TEST_F(Compute, AnIndexOutOfRangeIsAnErrorAndNothingElse) {
  const Tensor table = Upload({1, 2, 3, 4}, {2, 2});
  const std::vector<int64_t> bad = {0, 7};
  const Tensor index = *Tensor::FromHost(queue_, std::span<const int64_t>(bad), {2});
  const Tensor out = *Tensor::Empty(queue_, ops::DType::kFloat32, {2, 2});
  const TensorRef output = out.ref(), inputs[] = {table.ref(), index.ref()};
  ASSERT_TRUE(
      queue_.Execute({&ops::RowOf("embedding"), ops::DType::kFloat32, {&output, 1}, inputs, {}}).ok());
  const absl::Status status = queue_.Synchronize();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(status.message(), HasSubstr("index 7 is out of range in embedding("));
  EXPECT_THAT(*Add(table, table)->ToFloats(), ElementsAre(2, 4, 6, 8));
}

TEST_F(Compute, AProfileHasTheCommandsOfThisSession) {
  class Observer : public CommandObserver {
   public:
    void OnCommand(uint32_t device, uint32_t queue, uint64_t sequence) override {
      EXPECT_EQ(device, 0u);
      EXPECT_EQ(queue, 0u);
      sequences.push_back(sequence);
    }
    std::vector<uint64_t> sequences;
  } observer;
  const Tensor a = Upload({1, 2}, {2});
  const absl::Status none = session_->StopProfile(0).status();
  if (absl::IsUnimplemented(none)) GTEST_SKIP() << none;
  EXPECT_TRUE(absl::IsFailedPrecondition(none)) << none;
  const uint64_t before = NowNs();
  const absl::Status started = session_->StartProfile(0);
  ASSERT_TRUE(started.ok()) << started;
  session_->ObserveCommands(&observer);
  const Tensor b = *Mul(a, 2.0);
  EXPECT_THAT(*b.ToFloats(), ElementsAre(2, 4));
  ASSERT_TRUE(session_->Synchronize(0).ok());
  session_->ObserveCommands(nullptr);
  const uint64_t after = NowNs();
  const auto profile = session_->StopProfile(0);
  ASSERT_TRUE(profile.ok()) << profile.status();
  std::vector<uint64_t> sequences;
  int products = 0, downloads = 0;
  for (const ProfiledCommand& command : profile->commands) {
    sequences.push_back(command.sequence);
    downloads += command.kind == ProfiledCommand::Kind::kDownload;
    if (command.row != &ops::RowOf("mul.Tensor")) continue;
    ++products;
    EXPECT_THAT(profile->kernels[command.kernel], HasSubstr("mul"));
    EXPECT_EQ(command.bytes, 16u);
    EXPECT_GE(command.began_ns, before);
    EXPECT_GE(command.ended_ns, command.began_ns);
    EXPECT_LE(command.ended_ns, after);
  }
  EXPECT_EQ(products, 1);
  EXPECT_EQ(downloads, 1);
  EXPECT_EQ(sequences, observer.sequences);
}

TEST_F(Compute, MoreMemoryThanAllowedIsRefusedWhereItIsAskedFor) {
  const auto buffer = queue_.Allocate(session_->devices()[0].total_memory);
  EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(buffer.status().message(), StartsWith("XPUD out of memory. Tried to allocate "));
  EXPECT_THAT(buffer.status().message(), HasSubstr(" is free."));
}

TEST_F(Compute, ManyThreadsShareASession) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const float value = static_cast<float>(t * 1000 + i);
        right += (*Mul(Upload({value}, {1}), 2.0)->ToFloats())[0] == 2 * value;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 800);
}

TEST_F(Compute, MemoryIsAccounted) {
  const uint64_t before = session_->Memory(0).allocated_bytes;
  {
    const Tensor a = *Tensor::Empty(queue_, ops::DType::kFloat32, {1024});
    EXPECT_EQ(session_->Memory(0).allocated_bytes, before + 4096);
  }
  EXPECT_EQ(session_->Memory(0).allocated_bytes, before);
  EXPECT_GE(session_->Memory(0).peak_allocated_bytes, before + 4096);
}

}  // namespace
}  // namespace xpud::e2e
