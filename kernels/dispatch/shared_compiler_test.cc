// Two libraries on one compiler, each used by a thread of its own, as two lanes of the daemon use them.
#include <array>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/compiler/kernel_compiler.h"
#include "kernels/testing/device.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {
namespace {

using ops::DType;
using Numbers = std::vector<double>;

constexpr int64_t kRows = 24, kColumns = 40;

// One library and its device, and calls of every kind of planner.
class Lane {
 public:
  explicit Lane(std::shared_ptr<KernelCompiler> compiler) {
    KernelLibrary::Options options;
    options.compiler = std::move(compiler);
    options.workers = 2;
    options.on_ready = [this] { ++ready_; };
    library_ = *KernelLibrary::Create(options);
  }

  KernelLibrary& library() { return *library_; }
  int ready() const { return ready_; }

  // The results of each op, one after the other.
  Numbers ComputeAll() {
    Numbers results;
    for (const DType type : {DType::kFloat32, DType::kBFloat16}) {
      Run("add.Tensor", type, {{kRows, kColumns}, {kRows, kColumns}}, {{kRows, kColumns}}, results, {}, true);
      Run("exp", type, {{kRows, kColumns}}, {{kRows, kColumns}}, results);
      Run("_softmax", type, {{kRows, kColumns}}, {{kRows, kColumns}}, results, {ops::Number::Integer(1)});
      Run("sum", type, {{kRows, kColumns}}, {{kRows, 1}}, results);
      for (int again = 0; again < 3; ++again)  // the second packs weights
        Run("mm", type, {{kRows, kColumns}, {kColumns, kRows}}, {{kRows, kRows}}, results);
    }
    return results;
  }

 private:
  using Sizes = std::vector<int64_t>;

  void Run(const char* op, DType type, const std::vector<Sizes>& inputs, const std::vector<Sizes>& outputs,
           Numbers& results, const std::vector<ops::Number>& attributes = {}, bool alpha = false) {
    std::mt19937_64 random(7);
    std::vector<TestTensor> in, out;
    for (const Sizes& sizes : inputs) Randomise(in.emplace_back(type, sizes), random);
    for (const Sizes& sizes : outputs) out.emplace_back(type, sizes);
    std::vector<Operand> ins, outs;
    for (TestTensor& tensor : in) ins.push_back(tensor.operand());
    for (TestTensor& tensor : out) outs.push_back(tensor.operand());
    if (alpha) {
      ins.emplace_back();
      ins.back().immediate = true;
      ins.back().number = ops::Number::Real(1);
    }
    if (ins.size() > 1) ins[1].content = 7;
    const absl::Status ran = device_.Run(
        *library_,
        {.row = &ops::RowOf(op), .compute = type, .outputs = outs, .inputs = ins, .attributes = attributes});
    ASSERT_TRUE(ran.ok()) << op << ": " << ran;
    for (const TestTensor& tensor : out)
      for (int64_t i = 0; i < tensor.numel(); ++i) results.push_back(tensor.At(i));
  }

  std::atomic<int> ready_{0};
  TestDevice device_;
  std::unique_ptr<KernelLibrary> library_;
};

TEST(SharedCompiler, TwoThreadsComputeAndCompileEachKernelOnce) {
  const auto compiler = *KernelCompiler::Create({});
  std::array<Numbers, 2> results;
  std::array<KernelCounters, 2> counters;
  std::array<std::thread, 2> threads;
  for (size_t t = 0; t < threads.size(); ++t) {
    threads[t] = std::thread([&, t] {
      Lane lane(compiler);
      results[t] = lane.ComputeAll();
      for (int round = 0; round < 5; ++round) ASSERT_EQ(lane.ComputeAll(), results[t]);
      counters[t] = lane.library().counters();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(results[0].empty());
  EXPECT_EQ(results[0], results[1]);
  Lane alone(*KernelCompiler::Create({}));
  EXPECT_EQ(alone.ComputeAll(), results[0]);
  const uint64_t kernels = alone.library().counters().compiled;
  EXPECT_GT(kernels, 4u);
  EXPECT_EQ(alone.ready(), static_cast<int>(kernels));
  EXPECT_LE(counters[0].compiled + counters[1].compiled, 2 * kernels);
  for (const KernelCounters& lane : counters) EXPECT_EQ(lane.compiled + lane.shared_hits, kernels);
}

TEST(SharedCompiler, ALibraryGoesOnWhenAnotherEndsWhileItCompiles) {
  const auto compiler = *KernelCompiler::Create({});
  Lane stays(compiler);
  std::thread ends([&] {
    for (int round = 0; round < 3; ++round) Lane(compiler).ComputeAll();
  });
  const Numbers expected = stays.ComputeAll();
  for (int round = 0; round < 5; ++round) EXPECT_EQ(stays.ComputeAll(), expected);
  ends.join();
  EXPECT_EQ(stays.ComputeAll(), expected);
}

TEST(SharedCompiler, AnotherTargetsCompilerIsABug) {
  const auto create = [] {
    KernelLibrary::Options options;
    options.compiler = *KernelCompiler::Create({.target = Target::kNvptx});
    (void)KernelLibrary::Create(options);
  };
  EXPECT_DEATH(create(), "");
}

}  // namespace
}  // namespace xpud::kernels
