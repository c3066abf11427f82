// How large work is cut: into pieces of about 30 us, which workers claim one by one. Small work is one piece.
// The cut depends only on sizes, so results do not depend on the machine's load or worker count. Plain
// functions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace xpud::kernels {

inline constexpr float kSliceNanoseconds = 30'000;
inline constexpr float kBytesPerNanosecond = 16;  // approximate memory bandwidth of one core

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Returns the number of elements of a slice. There are `total` elements, each costing `nanoseconds`. The
// result is a multiple of `multiple`, so that slices start on cache lines.
inline int64_t SliceOf(int64_t total, float nanoseconds, int64_t multiple = 64) {
  const int64_t slice = std::max<int64_t>(1, static_cast<int64_t>(kSliceNanoseconds / nanoseconds));
  if (total <= slice + slice / 2) return std::max<int64_t>(total, 1);
  return CeilDiv(slice, multiple) * multiple;
}

}  // namespace xpud::kernels
