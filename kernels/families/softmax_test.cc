// Softmax, log-softmax and their gradients, over layouts for each loop order, compared with long double.
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {
namespace {

using ops::DType;

struct Shape {
  const char* name;
  std::vector<int64_t> sizes, out_strides, in_strides;
  int64_t dim;
};

const Shape kShapes[] = {
    {"no dimensions", {}, {}, {}, 0},
    {"one dimension", {100}, {1}, {1}, 0},
    {"rows", {7, 131}, {131, 1}, {131, 1}, 1},
    {"columns", {131, 70}, {70, 1}, {70, 1}, 0},
    {"middle", {3, 19, 45}, {855, 45, 1}, {855, 45, 1}, 1},
    {"more columns than a block", {5, 1100}, {1100, 1}, {1100, 1}, 0},
    {"strided rows", {6, 50}, {50, 1}, {200, 3}, 1},
    {"transposed input", {20, 30}, {30, 1}, {1, 20}, 1},
    {"size one", {5, 1}, {1, 1}, {1, 1}, 1},
    {"nothing", {0, 4}, {4, 1}, {4, 1}, 1},
    {"large", {3000, 200}, {200, 1}, {200, 1}, 1},
    {"large row", {2, 600000}, {600000, 1}, {600000, 1}, 1},
};

class SoftmaxTest : public DeviceTest {
 protected:
  static Exact Tolerance(DType type) {
    return type == DType::kFloat64   ? 1e-12L
           : type == DType::kFloat32 ? 2e-6L
           : type == DType::kFloat16 ? 2e-3L
                                     : 1.6e-2L;
  }

  // Calls f(indices of one row) for every row along `dim`.
  static void ForEachRow(const Shape& shape, const std::function<void(const std::vector<int64_t>&)>& f) {
    int64_t inner = 1, outer = 1;
    const size_t dim = static_cast<size_t>(shape.dim);
    for (size_t d = 0; d < shape.sizes.size(); ++d)
      (d < dim ? outer : inner) *= d == dim ? 1 : shape.sizes[d];
    const int64_t n = shape.sizes.empty() ? 1 : shape.sizes[dim];
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) {
        std::vector<int64_t> row;
        for (int64_t j = 0; j < n; ++j) row.push_back((o * n + j) * inner + i);
        f(row);
      }
    }
  }

  void Check(const char* name, DType type, const Shape& shape) {
    const std::string what = std::string(name) + " " + std::string(ops::Info(type).name) + " " + shape.name;
    const ops::Row& row = ops::RowOf(name);
    const bool log = what.starts_with("_log"), backward = row.inputs == 2;
    TestTensor out(type, shape.sizes, shape.out_strides), x(type, shape.sizes, shape.in_strides),
        y(type, shape.sizes, shape.out_strides);
    Randomise(x, random_);
    // A forward result, the input of backward; its rounding is part of the input.
    ForEachRow(shape, [&](const std::vector<int64_t>& r) {
      for (const int64_t i : r)
        y.Set(i, log ? -1 - static_cast<Exact>(i % 5)
                     : 1.0L / static_cast<Exact>(r.size() + static_cast<size_t>(i % 3)));
    });
    const Operand outs[] = {out.operand()}, ins[] = {x.operand(), y.operand()};
    const ops::Number dim = ops::Number::Integer(shape.dim);
    const OpCall call{.row = &row,
                      .compute = type,
                      .outputs = outs,
                      .inputs = {ins, backward ? 2u : 1u},
                      .attributes = {&dim, 1}};
    const absl::Status status = device_.Run(*library_, call);
    ASSERT_TRUE(status.ok()) << what << ": " << status;
    int bad = 0;
    ForEachRow(shape, [&](const std::vector<int64_t>& r) {
      Exact largest = -INFINITY, sum = 0, scale = 0;
      for (const int64_t i : r) largest = std::max(largest, x.At(i));
      for (const int64_t i : r) {
        sum += !backward ? std::exp(x.At(i) - largest) : log ? x.At(i) : x.At(i) * y.At(i);
        scale += std::fabs(x.At(i)) / 100;
      }
      for (const int64_t i : r) {
        const Exact shifted = x.At(i) - largest;
        const Exact want = !backward ? (log ? shifted - std::log(sum) : std::exp(shifted) / sum)
                           : log     ? x.At(i) - std::exp(y.At(i)) * sum
                                     : (x.At(i) - sum) * y.At(i);
        const Exact error = std::fabs(out.At(i) - want);
        if (!(error <= Tolerance(type) * (std::fabs(want) + (backward ? 1 + scale
                                                             : log    ? 0.2L
                                                                      : 1e-3L))) &&
            bad++ < 3) {
          ADD_FAILURE() << what << " element " << i << ": got " << static_cast<double>(out.At(i)) << ", want "
                        << static_cast<double>(want);
        }
      }
    });
    ASSERT_EQ(bad, 0) << what;
    ASSERT_TRUE(out.MarginsIntact()) << what;
  }

  std::mt19937_64 random_{7};
};

TEST_F(SoftmaxTest, EveryRowAgreesWithTheReferenceForEveryLayout) {
  for (const char* name :
       {"_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"}) {
    for (const Shape& shape : kShapes) {
      for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
        if (type != DType::kFloat32 && shape.sizes.size() > 0 && shape.sizes[0] * shape.sizes.back() > 100000)
          continue;
        Check(name, type, shape);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(SoftmaxTest, MaskedRowsAndNansAreAsInAten) {
  for (const int64_t dim : {0, 1}) {
    TestTensor x(DType::kFloat32, {40, 40}), out(DType::kFloat32, {40, 40});
    // Row and column 1: all -inf. 2: one NaN. 3: one -inf, the rest 0.
    const auto set = [&](int64_t row, int64_t i, Exact v) {
      x.Set(dim == 1 ? row * 40 + i : i * 40 + row, v);
    };
    for (int64_t i = 0; i < 40; ++i) set(1, i, -INFINITY);
    set(2, 7, NAN);
    set(3, 7, -INFINITY);
    const Operand outs[] = {out.operand()}, ins[] = {x.operand()};
    const ops::Number d = ops::Number::Integer(dim);
    ASSERT_TRUE(device_
                    .Run(*library_, {.row = &ops::RowOf("_softmax"),
                                     .compute = DType::kFloat32,
                                     .outputs = outs,
                                     .inputs = ins,
                                     .attributes = {&d, 1}})
                    .ok());
    const auto at = [&](int64_t row, int64_t i) { return out.At(dim == 1 ? row * 40 + i : i * 40 + row); };
    EXPECT_TRUE(std::isnan(at(1, 0)));
    EXPECT_TRUE(std::isnan(at(2, 0)));
    EXPECT_EQ(at(3, 7), 0);
    EXPECT_NEAR(static_cast<double>(at(3, 8)), 1.0 / 39, 1e-7);
    EXPECT_NEAR(static_cast<double>(at(4, 8)), 1.0 / 40, 1e-7);
  }
}

}  // namespace
}  // namespace xpud::kernels
