// Evaluates formulas in long double and 64-bit integers with the C++ library: what the kernels are compared
// with. One thread.
#pragma once

#include <array>
#include <vector>

#include "kernels/compiler/expression.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {

class ReferenceEvaluator {
 public:
  // `floating` and `dtype`: the compute type.
  ReferenceEvaluator(const Expression& expression, ops::DType compute)
      : expression_(expression), compute_(compute) {}

  std::array<Exact, kNumVariables> variables{};
  // Largest finite magnitude met on the way to the last result: the scale of rounding errors.
  Exact magnitude = 0;

  Exact Evaluate(NodeId id);

 private:
  Exact EvaluateNode(const Node& node);
  // Of a signed compute type.
  Exact Highest() const { return static_cast<Exact>(~uint64_t{0} >> (65 - 8 * ops::SizeOf(compute_))); }
  bool floating() const { return ops::IsFloating(compute_); }

  const Expression& expression_;
  const ops::DType compute_;
};

// Philox4x32-10 with counter {block, 0, 0}, in the words' order.
std::array<uint32_t, 4> ReferencePhilox(uint64_t seed, uint64_t block);

}  // namespace xpud::kernels
