// Tensors of any layout for tests; elements are read and written as exact values. Used by one thread.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/api/planner.h"

namespace xpud::kernels {

// An element. A long double holds every value of every element type exactly.
using Exact = long double;

class TestTensor {
 public:
  // Bytes before and after the elements, which no kernel may write.
  static constexpr size_t kMargin = 64;

  // Row-major without gaps.
  TestTensor(ops::DType dtype, const std::vector<int64_t>& sizes);
  // Given strides, in elements.
  TestTensor(ops::DType dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides);

  Operand operand() const;
  int64_t numel() const;
  ops::DType dtype() const { return dtype_; }
  const std::vector<int64_t>& sizes() const { return sizes_; }

  // Returns element number `i`, row-major.
  Exact At(int64_t i) const;
  void Set(int64_t i, Exact value);
  Exact AtIndex(const std::vector<int64_t>& index) const;

  // Returns true if nothing outside the tensor's elements (gaps, and a margin at either end) was written.
  bool MarginsIntact() const;

 private:
  size_t OffsetOf(int64_t i) const;

  ops::DType dtype_;
  std::vector<int64_t> sizes_, strides_;
  std::vector<std::byte> bytes_;
};

// Returns `value` rounded to `dtype`, as a store does.
Exact RoundTo(ops::DType dtype, Exact value);

struct RandomRange {
  double low = -8, high = 8;
  bool specials = false;  // sometimes inf, -inf, nan, 0, tiny and large values (floats); extremes (integers)
};
void Randomise(TestTensor& tensor, std::mt19937_64& random, const RandomRange& range = {});

}  // namespace xpud::kernels
