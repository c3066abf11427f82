// One slow command on the CPU device in the daemon's own process: others get their turns, and its results are
// the same as without interruption.
#include <algorithm>
#include <thread>
#include <vector>

#include "tests/conformance/isolation/isolation_test.h"
#include "tests/conformance/isolation/op_calls.h"
#include "xpud/tensor.h"

namespace xpud::isolation {
namespace {

using std::chrono::seconds;

using LongCommands = Isolation;

// A product with 2^40 multiplications, which takes about 15 s on two cores.
void PutLongProduct(HostileSession& session) {
  constexpr uint64_t kRows = 8192, kDepth = 16384;
  session.Put(Allocate({1, 1}, kRows * kRows * sizeof(float)));
  session.Put(Allocate({2, 1}, 4096));
  const View out = TensorView({1, 1}, {kRows, kRows});
  const View a = TensorView({2, 1}, {kRows, kDepth}, ops::DType::kFloat32, 0, {0, 0});
  const View b = TensorView({2, 1}, {kDepth, kRows}, ops::DType::kFloat32, 0, {0, 0});
  Call product = RightCall(ops::RowOf("mm"));
  product.outputs = {out}, product.inputs = {a, b, View{}};
  session.Put(product.bytes());
  session.Publish();
}

TEST_F(LongCommands, LetOthersWorkAndEndWithTheirSession) {
  auto hostile = std::make_unique<HostileSession>(socket());
  PutLongProduct(*hostile);
  std::this_thread::sleep_for(seconds(1));  // it has begun
  innocent_.TakeLongestMs();
  const uint64_t rounds = innocent_.rounds();
  EXPECT_TRUE(e2e::Within(seconds(60), [&] { return innocent_.rounds() > rounds + 10; }));
  {
    Innocent newcomer(socket());
  }
  std::printf("[ figures  ] beside a long command a round takes %.1f ms at most\n",
              innocent_.TakeLongestMs());
  EXPECT_LT(hostile->completion().queues[0].completed.load(), hostile->sequence())
      << "they waited for its end";
  EXPECT_FALSE(hostile->closed());
  hostile.reset();
  ExpectAsBefore({.resident = 16 * kMiB, .mappings = 128});
}

TEST_F(LongCommands, GiveTheSameResultsInPieces) {
  const auto session = daemon_.Connect();
  const Queue queue = session->DefaultQueue(0);
  constexpr int64_t kSide = 2048;
  const std::vector<float> ones(kSide * kSide, 1);
  const Tensor a = *Tensor::FromHost(queue, std::span<const float>(ones), {kSide, kSide});
  const auto expect_all = [](const absl::StatusOr<Tensor>& tensor, float value) {
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    const std::vector<float> found = *tensor->ToFloats();
    EXPECT_TRUE(std::all_of(found.begin(), found.end(), [&](float one) { return one == value; }));
  };
  for (int round = 0; round < 3; ++round) {
    expect_all(Matmul(a, a), kSide);
    expect_all(Softmax(a, 1), 1.0F / kSide);
    expect_all(Sum(a, 0), kSide);
    expect_all(Sum(a, 1), kSide);
    expect_all(Add(a, a), 2);
  }
  innocent_.ExpectUnharmed();
}

}  // namespace
}  // namespace xpud::isolation
