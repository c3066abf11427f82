// The definition of kMatmul in double precision.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

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

// Checks `out` against the definition in double precision; `before` is c as it was (c may have been
// overwritten through out).
inline void ExpectProduct(const HostTensor& out, const HostTensor& a, const HostTensor& b,
                          const HostTensor& before, double beta, double alpha, ops::Activation activation) {
  const Operand& shape = out.shape();
  const int last = shape.rank - 1;
  const int64_t depth = a.shape().sizes[last];
  const double epsilon = Epsilon(shape.dtype);
  int wrong = 0;
  out.ForEach([&](auto index) {
    double sum = 0, magnitude = 0;
    for (int64_t k = 0; k < depth; ++k) {
      auto ia = index, ib = index;
      ia[last] = k;
      ib[last - 1] = k;
      const double term = a.At(ia) * b.At(ib);
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
