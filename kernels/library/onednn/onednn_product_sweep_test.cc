// Matrix products over shapes, types, layouts and addends, with plain and with packed weights, compared with
// plain loops. Elements are small whole numbers, so that sums are exact in f32 in any order, and a difference
// is an error, not rounding. Run for each of oneDNN's instruction sets, as onednn_sweep_test.cc is.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>
#include <string>

#include "kernels/library/onednn/onednn_matmul.h"
#include "kernels/library/onednn/primitive.h"
#include "kernels/library/testing/host_device.h"
#include "kernels/library/testing/host_tensor.h"

namespace xpud::kernels::onednn {
namespace {

using ops::DType;
using testing::HostDevice;
using testing::HostTensor;

// How the two inner axes of a factor lie in memory.
enum class Lie : uint8_t { kRows, kColumns, kPaddedRows };
enum class Addend : uint8_t { kNone, kRow, kColumn, kMatrix };

struct Shape {
  int64_t batch, m, n, k;
  Lie a, b;
  Addend c;

  std::string Name() const {
    std::string name;
    for (const int64_t each :
         {batch, m, n, k, static_cast<int64_t>(a), static_cast<int64_t>(b), static_cast<int64_t>(c)})
      name += std::to_string(each) + " ";
    return name;
  }
};

HostTensor Factor(DType type, int64_t batch, int64_t rows, int64_t columns, Lie lie) {
  const std::vector<int> order = lie == Lie::kColumns ? std::vector{0, 2, 1} : std::vector{0, 1, 2};
  return HostTensor::Laid(type, {batch, rows, columns}, order, lie == Lie::kPaddedRows ? 3 : 0);
}

// All shapes take minutes.
std::vector<Shape> Shapes() {
  const bool full = std::getenv("XPUD_TEST_FULL") != nullptr;
  using Sizes = std::vector<int64_t>;
  const Sizes ms =
      full ? Sizes{1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 33, 48, 64, 100, 129} : Sizes{1, 3, 5, 16, 33, 100};
  const Sizes ns = full ? Sizes{1, 3, 8, 15, 16, 17, 24, 32, 40, 48, 63, 64, 80, 96, 112, 144, 200}
                        : Sizes{1, 16, 24, 48, 80, 112};
  const Sizes ks = full ? Sizes{1, 2, 3, 7, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 80, 96, 112, 144, 300}
                        : Sizes{1, 3, 16, 24, 48, 80, 129};
  std::vector<Shape> shapes;
  std::mt19937 random(38);
  const auto next = [&](unsigned count) { return static_cast<int>(random() % count); };
  for (const int64_t m : ms)
    for (const int64_t n : ns)
      for (const int64_t k : ks) {
        shapes.push_back({1, m, n, k, Lie::kRows, Lie::kColumns, Addend::kRow});  // a linear layer
        shapes.push_back({1 + next(2) * 2, m, n, k, static_cast<Lie>(next(3)), static_cast<Lie>(next(3)),
                          static_cast<Addend>(next(4))});
      }
  return shapes;
}

class ProductSweep : public ::testing::TestWithParam<DType> {
 protected:
  ProductSweep() : device_(1), planner_(device_, {.workers = 1, .packed_bytes = size_t{1} << 24}) {}

  void Fill(HostTensor& tensor) {
    tensor.ForEach([&](const auto& index) {
      tensor.Set(index, static_cast<double>(static_cast<int>(random_() % 5) - 2));
    });
  }

  void Check(const Shape& s) {
    const DType type = GetParam();
    HostTensor a = Factor(type, s.batch, s.m, s.k, s.a), b = Factor(type, s.batch, s.k, s.n, s.b), c,
               out = HostTensor::Dense(type, {s.batch, s.m, s.n});
    if (s.c == Addend::kRow) c = HostTensor::Dense(type, {s.n});
    if (s.c == Addend::kColumn) c = HostTensor::Dense(type, {s.m, 1});
    if (s.c == Addend::kMatrix) c = HostTensor::Dense(type, {s.m, s.n});
    for (HostTensor* const tensor : {&a, &b, &c})
      if (tensor->present()) Fill(*tensor);
    std::vector<float> want;
    const auto at = [](const HostTensor& tensor, int64_t matrix, int64_t row, int64_t column) {
      return static_cast<float>(tensor.At(std::array{matrix, row, column}));
    };
    for (int64_t i = 0; i < s.batch; ++i) {
      std::vector<float> left, right;
      for (int64_t row = 0; row < s.m; ++row)
        for (int64_t k = 0; k < s.k; ++k) left.push_back(at(a, i, row, k));
      for (int64_t k = 0; k < s.k; ++k)
        for (int64_t column = 0; column < s.n; ++column) right.push_back(at(b, i, k, column));
      for (int64_t row = 0; row < s.m; ++row) {
        std::vector<float> sums(static_cast<size_t>(s.n));
        for (int64_t column = 0; column < s.n; ++column) {
          if (s.c == Addend::kRow) sums[column] = static_cast<float>(c.At(std::array{column}));
          if (s.c == Addend::kColumn) sums[column] = static_cast<float>(c.At(std::array{row, int64_t{0}}));
          if (s.c == Addend::kMatrix) sums[column] = static_cast<float>(c.At(std::array{row, column}));
        }
        for (int64_t k = 0; k < s.k; ++k)
          for (int64_t column = 0; column < s.n; ++column)
            sums[column] += left[row * s.k + k] * right[k * s.n + column];
        want.insert(want.end(), sums.begin(), sums.end());
      }
    }
    // At its second sight a weight is packed, so the third product uses the packed one.
    b.set_content(++content_);
    for (int sight = 1; sight <= 3; ++sight) {
      Run(out, a, b, c);
      float worst = 0;
      size_t place = 0;
      out.ForEach([&](const auto& index) {
        const float unit = type == DType::kFloat32 ? 0 : type == DType::kBFloat16 ? 0x1p-8F : 0x1p-11F;
        const float expected = want[place++];
        const float error =
            std::fabs(static_cast<float>(out.At(index)) - expected) - unit * std::fabs(expected);
        if (!(error <= worst)) worst = error;  // also if it is NaN
      });
      EXPECT_EQ(worst, 0) << "product of " << ops::Info(type).name << ": " << s.Name() << "at sight "
                          << sight;
    }
  }

  void Run(HostTensor& out, HostTensor& a, HostTensor& b, HostTensor& c) {
    const Operand outputs[] = {out.operand()};
    const Operand inputs[] = {a.operand(), b.operand(), c.operand()};
    const ops::Number attributes[] = {ops::Number::Real(1), ops::Number::Real(1), ops::Number::Integer(0)};
    OpCall call;
    call.row = &ops::RowOf("baddbmm");
    call.compute = inputs[0].dtype;
    call.outputs = outputs;
    call.inputs = inputs;
    call.attributes = attributes;
    const absl::Status status = device_.Plan(planner_, call, launches_);
    ASSERT_TRUE(status.ok()) << status;
    device_.Run(launches_);
  }

  HostDevice device_;
  OnednnMatmul planner_;
  LaunchList launches_;
  std::mt19937_64 random_{38};
  uint64_t content_ = 0;
};

TEST_P(ProductSweep, ProductsAreExactForWholeNumbers) {
  const std::vector<Shape> shapes = Shapes();
  for (const Shape& shape : shapes) Check(shape);
  std::printf("%zu shapes, three products each\n", shapes.size());
}

INSTANTIATE_TEST_SUITE_P(Types, ProductSweep,
                         ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const auto& param) { return std::string(ops::Info(param.param).name); });

}  // namespace
}  // namespace xpud::kernels::onednn
