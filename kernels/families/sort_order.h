// The order of sorting, and the lines that are sorted: what all ways of sorting share.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/compiler/emitter.h"
#include "kernels/families/layout.h"

namespace xpud::kernels {

// The lines of a call of family kSort. The first k of the n elements of each line are wanted.
struct SortedLines {
  Layout layout;  // of the lines; operands: values, indices, self
  int64_t n = 1, k = 1;
  std::array<int64_t, 3> strides{};  // of the operands, along a line
  ops::DType type = ops::DType::kInt64;
  bool descending = false;
};

SortedLines LinesToSort(const OpCall& call);

// Returns the bits of an element (or of each one of a vector) as an unsigned number in the order of the
// result: ascending or descending, -0 equals 0, NaN is the largest number.
Emitter::Value OrderOf(Emitter& e, ops::DType type, bool descending, Emitter::Value bits);

// An element from its number in the order.
struct Unordered {
  Emitter::Value bits;
  Emitter::Value exact;  // i1: false for zeros and NaN, whose bits the number does not determine
};
Unordered FromOrder(Emitter& e, ops::DType type, bool descending, Emitter::Value order);

}  // namespace xpud::kernels
