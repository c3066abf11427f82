// Additions of rows at indices, compared with a reference that adds in the same order: results must be equal,
// not only close.
#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/gpu.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {
namespace {

using ops::DType;

class ScatterTest : public DeviceTest {
 protected:
  struct Case {
    int64_t rows = 9, columns = 5, count = 40;
    DType type = DType::kFloat32, index = DType::kInt64;
    int64_t padding = -1;
    bool strided = false;
    int64_t wrong = -1;  // this position's index is out of range
    int64_t wrong_index = 0;
  };

  // One addition as on the device: in f32 for 16-bit floats, and wrapping for integers.
  static Exact Add(DType type, Exact a, Exact b) {
    if (type == DType::kFloat64) return static_cast<double>(a) + static_cast<double>(b);
    if (ops::IsFloating(type)) return RoundTo(type, static_cast<float>(a) + static_cast<float>(b));
    return RoundTo(type,
                   static_cast<Exact>(static_cast<int64_t>(static_cast<uint64_t>(static_cast<int64_t>(a)) +
                                                           static_cast<uint64_t>(static_cast<int64_t>(b)))));
  }

  void Check(const Case& c) {
    SCOPED_TRACE(std::to_string(c.rows) + "x" + std::to_string(c.columns) + " from " +
                 std::to_string(c.count) + " " + std::string(ops::Info(c.type).name) +
                 (c.strided ? " strided" : ""));
    TestTensor out(c.type, {c.rows, c.columns}, {c.columns * (c.strided ? 2 : 1), c.strided ? 2 : 1});
    TestTensor index(c.index, {c.count}, {c.strided ? 3 : 1});
    TestTensor source(c.type, {c.count, c.columns}, {c.strided ? 1 : c.columns, c.strided ? c.count : 1});
    Randomise(out, random_, {.low = -100, .high = 100});
    Randomise(source, random_, {.low = -100, .high = 100});
    std::vector<Exact> want(static_cast<size_t>(out.numel()));
    for (int64_t i = 0; i < out.numel(); ++i) want[static_cast<size_t>(i)] = out.At(i);
    for (int64_t n = 0; n < c.count; ++n) {
      const int64_t row =
          n == c.wrong ? c.wrong_index : static_cast<int64_t>(random_() % static_cast<uint64_t>(c.rows));
      index.Set(n, row);
      if (n == c.wrong || row == c.padding) continue;
      for (int64_t k = 0; k < c.columns; ++k) {
        Exact& sum = want[static_cast<size_t>(row * c.columns + k)];
        sum = Add(c.type, sum, source.AtIndex({n, k}));
      }
    }
    const Operand output = out.operand();
    const Operand inputs[] = {index.operand(), source.operand()};
    const ops::Number padding = ops::Number::Integer(c.padding);
    uint64_t error = 0;
    const absl::Status status = device_.Run(*library_, {.row = &ops::RowOf("embedding_dense_backward"),
                                                        .compute = c.type,
                                                        .outputs = {&output, 1},
                                                        .inputs = inputs,
                                                        .attributes = {&padding, 1},
                                                        .error_word = &error});
    ASSERT_TRUE(status.ok()) << status;
    const uint64_t wrong =
        static_cast<uint64_t>(c.wrong_index) << 8 | static_cast<uint64_t>(DeviceError::kIndexOutOfRange);
    EXPECT_EQ(error, c.wrong < 0 ? 0 : wrong);
    for (int64_t i = 0; i < out.numel(); ++i) {
      ASSERT_EQ(out.At(i), want[static_cast<size_t>(i)]) << "element " << i;
    }
    EXPECT_TRUE(out.MarginsIntact());
  }

  std::mt19937_64 random_{5};
};

TEST_F(ScatterTest, EveryTypeAddsInOrder) {
  for (int t = 0; t < ops::kNumDTypes; ++t) {
    if (!ops::Contains(ops::RowOf("embedding_dense_backward").dtypes, static_cast<DType>(t))) continue;
    for (const DType index : {DType::kInt64, DType::kInt32})
      Check({.type = static_cast<DType>(t), .index = index});
    Check({.columns = 70, .type = static_cast<DType>(t), .strided = true});
  }
}

TEST_F(ScatterTest, EveryShapeAddsInOrder) {
  for (const bool strided : {false, true}) {
    Check({.rows = 1, .columns = 1, .count = 1, .strided = strided});
    Check({.rows = 3, .columns = 300, .count = 17, .strided = strided});
    Check({.rows = 500, .columns = 33, .count = 2000, .strided = strided});
  }
  Check({.count = 0});
}

TEST_F(ScatterTest, LargeWorkIsCutAndStillAddsInOrder) {
  Check({.rows = 1000, .columns = 384, .count = 3000});  // cut by columns
  EXPECT_GT(device_.groups(), 1u);
  Check({.rows = 200, .columns = 48, .count = 50000, .type = DType::kBFloat16});  // also cut by rows
  EXPECT_GT(device_.groups(), 2u);
}

TEST_F(ScatterTest, PaddingIsSkipped) {
  Check({.padding = 3});
  Check({.padding = 0});
}

TEST_F(ScatterTest, IndicesOutOfRangeAreReportedAndSkipped) {
  for (const int64_t wrong : {int64_t{9}, int64_t{-1}, int64_t{1} << 40}) {
    for (const int64_t position : {0, 20, 39}) Check({.wrong = position, .wrong_index = wrong});
  }
}

TEST_F(ScatterTest, CompilesForGpus) {
  for (const DType type :
       {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt64, DType::kUInt8}) {
    TestTensor out(type, {50, 20}), index(DType::kInt64, {30}), source(type, {30, 20});
    const Operand output = out.operand();
    const Operand inputs[] = {index.operand(), source.operand()};
    const ops::Number padding = ops::Number::Integer(-1);
    EXPECT_EQ(CompileForGpus({.row = &ops::RowOf("embedding_dense_backward"),
                              .compute = type,
                              .outputs = {&output, 1},
                              .inputs = inputs,
                              .attributes = {&padding, 1}}),
              absl::OkStatus());
  }
}

}  // namespace
}  // namespace xpud::kernels
