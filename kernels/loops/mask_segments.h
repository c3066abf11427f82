// Where an iterator decides which masks hold. A loop that runs through each segment by itself has no branches
// there, and is vectorised: of what concatenates, pads or rotates.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/loops/kernel.h"

namespace xpud::kernels {

struct MaskSegments {
  // What masks need of the values of an iterator: a comparison with a constant.
  struct Comparison {
    uint32_t statement;
    int64_t at;      // from here on its value is another
    bool is_before;  // its value before
  };
  static constexpr size_t kMaxSegments = 4;

  // Has one segment if there is no such comparison, or too many.
  static MaskSegments Of(const loops::Body& body, uint32_t dimension);

  size_t size() const { return ends.size() + 1; }
  // REQUIRES: segment < size().
  bool ValueIn(size_t segment, const Comparison& comparison) const {
    const bool is_before = segment < ends.size() && ends[segment] <= comparison.at;
    return is_before == comparison.is_before;
  }

  std::vector<Comparison> comparisons;
  std::vector<int64_t> ends;  // of all segments but the last, ascending
};

}  // namespace xpud::kernels
