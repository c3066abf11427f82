// Shared memory that changes while commands that were checked use it: indices that were in range.
#include <thread>

#include "proto/transport/host_memory.h"
#include "tests/conformance/isolation/isolation_test.h"
#include "tests/conformance/isolation/op_calls.h"

namespace xpud::isolation {
namespace {

using ops::DType;

constexpr uint64_t kRows = 4, kWidth = 16, kIndices = 512;
constexpr wire::Handle kTable = {1, 1}, kIndex = {2, 1}, kOut = {3, 1};
constexpr uint64_t kIndexBytes = kIndices * 8, kOutBytes = kIndices * kWidth * 4;
constexpr uint64_t kResultAt = 1 << 20;  // in staging
constexpr int kRounds = 3000;

class BulkData : public Isolation {
 protected:
  void SetUp() override {
    std::vector<float> table;
    for (uint64_t row = 1; row <= kRows; ++row) table.insert(table.end(), kWidth, static_cast<float>(row));
    session_->Put(Allocate(kTable, table.size() * 4));
    session_->Put(UploadInline(kTable, 0, std::as_bytes(std::span(table))));
    session_->Put(Allocate(kIndex, kIndexBytes));
    session_->Put(Allocate(kOut, kOutBytes));
    ASSERT_TRUE(session_->Settle().ok());
  }

  // Looks up `rounds` times by indices at `place`, which another thread keeps changing. The result must be
  // rows of the table, or IndexError.
  void LookUpFrom(wire::HostPlace place) {
    const View out = TensorView(kOut, {kIndices, kWidth});
    const View inputs[] = {TensorView(kTable, {kRows, kWidth}),
                           TensorView(kIndex, {kIndices}, DType::kInt64)};
    const auto lookup = Execute(ops::RowOf("embedding"), DType::kFloat32, {&out, 1}, inputs);
    int right = 0, refused = 0;
    for (int round = 0; round < kRounds; ++round) {
      session_->Put(Upload(kIndex, 0, place, kIndexBytes));
      session_->Put(lookup);
      session_->Put(Download(kOut, 0, {kResultAt, 0, 0}, kOutBytes));
      const absl::Status status = session_->Settle();
      if (!status.ok()) {
        ASSERT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
        ++refused;
        continue;
      }
      const auto* const values = reinterpret_cast<const float*>(session_->staging().data() + kResultAt);
      for (uint64_t i = 0; i < kIndices * kWidth; ++i)
        ASSERT_TRUE(values[i] >= 1 && values[i] <= kRows) << values[i] << " is no element of the table";
      ++right;
    }
    std::printf("[ figures  ] %d rounds right, %d refused\n", right, refused);
    EXPECT_GT(right, 0);
    EXPECT_GT(refused, 0);
  }

  std::unique_ptr<HostileSession> session_ = std::make_unique<HostileSession>(socket());
};

// Writes indices until told to stop, alternately all in range and one out of range.
class Rewriter {
 public:
  explicit Rewriter(std::byte* indices) : indices_(reinterpret_cast<int64_t*>(indices)) {
    thread_ = std::thread([this] { Main(); });
  }
  ~Rewriter() {
    stop_ = true;
    thread_.join();
  }

 private:
  void Main() {
    constexpr int64_t kWrong[] = {int64_t{kRows},     -1, INT64_MIN, INT64_MAX, int64_t{1} << 40,
                                  -(int64_t{1} << 32)};
    for (uint64_t round = 0; !stop_; ++round) {
      const uint64_t at = round * 31 % kIndices;
      for (int flip = 0; flip < 100; ++flip) Set(at, flip % 2 == 0 ? kWrong[round % std::size(kWrong)] : 0);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      Set(at, kWrong[round % std::size(kWrong)]);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      Set(at, static_cast<int64_t>(round % kRows));
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  void Set(uint64_t at, int64_t value) {
    std::atomic_ref(indices_[at]).store(value, std::memory_order_relaxed);
  }

  int64_t* const indices_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST_F(BulkData, OfIndicesInStagingThatChange) {
  std::fill_n(session_->staging().data(), kIndexBytes, std::byte{0});
  {
    Rewriter rewriter(session_->staging().data());
    LookUpFrom({0, 0, 0});
  }
  session_.reset();
  ExpectAsBefore();
}

TEST_F(BulkData, OfIndicesInHostMemoryThatChange) {
  if (IsRemote()) GTEST_SKIP() << "a network has no memory in common";
  constexpr uint64_t kBytes = transport::kHostMemoryUnit;
  const UniqueFd memory = *transport::CreateHostMemory(kBytes);
  const Mapping mapping = *Mapping::Map(memory, kBytes, Access::kReadWrite);
  const transport::Request message = {transport::RequestKind::kShareMemory, 7, kBytes, 1};
  const int fd = memory.get();
  ASSERT_TRUE(
      transport::SendMessage(session_->socket(), std::as_bytes(std::span(&message, 1)), {&fd, 1}).ok());
  transport::Answer answer;
  ASSERT_TRUE(
      transport::ReceiveMessage(session_->socket(), std::as_writable_bytes(std::span(&answer, 1))).ok());
  ASSERT_EQ(answer.code, 0u) << answer.text;
  {
    Rewriter rewriter(mapping.data());
    LookUpFrom({0, 7, 0});
  }
  session_.reset();
  ExpectAsBefore();
}

}  // namespace
}  // namespace xpud::isolation
