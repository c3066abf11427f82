// Evaluates formulas in long double and 64-bit integers with the C++ library. The tests compare kernels with
// it. Used by one thread.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "kernels/compiler/formulas.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {

class ReferenceEvaluator {
 public:
  // `stored` is the type of the first output; `compute` by default.
  ReferenceEvaluator(const Expression& expression, ops::DType compute,
                     std::optional<ops::DType> stored = std::nullopt)
      : expression_(expression), compute_(compute), stored_(stored.value_or(compute)) {}

  std::array<Exact, kNumVariables> variables{};
  // The largest finite magnitude while computing the last result: the scale of rounding errors.
  Exact magnitude = 0;

  Exact Evaluate(NodeId id);

 private:
  Exact EvaluateNode(const Node& node);
  // Returns two words of Philox for the element at the index.
  uint64_t Bits64(int64_t seed, int64_t offset) const;
  // The largest value of a signed compute type.
  Exact Highest() const { return static_cast<Exact>(~uint64_t{0} >> (65 - 8 * ops::SizeOf(compute_))); }
  Exact Width() const { return static_cast<Exact>(8 * ops::SizeOf(compute_)); }  // in bits
  bool floating() const { return ops::IsFloating(compute_); }

  const Expression& expression_;
  const ops::DType compute_;
  const ops::DType stored_;
};

// Philox4x32-10 with counter {block, 0, 0}. Returns the words in order.
std::array<uint32_t, 4> ReferencePhilox(uint64_t seed, uint64_t block);

}  // namespace xpud::kernels
