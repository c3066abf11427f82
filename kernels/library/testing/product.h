// A reference for kMatmul in double precision.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/library/testing/host_tensor.h"

namespace xpud::kernels::testing {

inline double Activate(double x, ops::Activation activation) {
  switch (activation) {
    case ops::Activation::kNone:
      return x;
    case ops::Activation::kRelu:
      return x < 0 ? 0 : x;
    case ops::Activation::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case ops::Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  return x;
}

// Returns its elements, row after row.
inline std::vector<double> Values(const HostTensor& tensor) {
  std::vector<double> values;
  values.reserve(static_cast<size_t>(tensor.shape().numel()));
  tensor.ForEach([&](const auto& index) { values.push_back(tensor.At(index)); });
  return values;
}

// Compares `out` with the reference. `before` is the old value of c, which may have been overwritten through
// out.
inline void ExpectProduct(const HostTensor& out, const HostTensor& a, const HostTensor& b,
                          const HostTensor& before, double beta, double alpha, ops::Activation activation) {
  const Operand& shape = out.shape();
  const int last = shape.rank - 1;
  const int64_t rows = shape.sizes[last - 1], columns = shape.sizes[last], depth = a.shape().sizes[last];
  const std::vector<double> left = Values(a), right = Values(b);
  const double epsilon = Epsilon(shape.dtype);
  int wrong = 0;
  int64_t row = 0;  // row index over all matrices
  out.ForEach([&](const auto& index) {
    const size_t of_left = row * depth, of_right = row / rows * depth * columns + index[last];
    if (index[last] == columns - 1) ++row;
    double sum = 0, magnitude = 0;
    for (int64_t k = 0; k < depth; ++k) {
      const double term = left[of_left + k] * right[of_right + k * columns];
      sum += term;
      magnitude += std::abs(term);
    }
    double expected = alpha * sum;
    if (before.present() && beta != 0) {
      std::array<int64_t, ops::kMaxRank> ic{};
      const int shift = shape.rank - before.shape().rank;
      for (int d = 0; d < before.shape().rank; ++d) ic[d] = index[d + shift];
      expected += beta * before.At(ic);
    }
    magnitude = std::abs(alpha) * magnitude + std::abs(expected);
    expected = Activate(expected, activation);
    const double accumulate = shape.dtype == ops::DType::kFloat64 ? 2.3e-16 : 1.2e-7;
    const double tolerance = epsilon * (std::abs(expected) + 1e-3) + accumulate * (8 * magnitude + 4);
    if (!(std::abs(out.At(index) - expected) <= tolerance) && ++wrong <= 3)
      ADD_FAILURE() << "at " << index[0] << "," << index[1] << "," << index[2] << ": " << out.At(index)
                    << ", expected " << expected << " within " << tolerance;
  });
  EXPECT_EQ(wrong, 0);
}

}  // namespace xpud::kernels::testing
