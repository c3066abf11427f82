// How large work is cut: pieces of about 30 us, which workers claim one by one; small work is one piece. The
// cut depends on the sizes alone, so that results do not depend on the machine's load or worker count. Plain
// functions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace xpud::kernels {

inline constexpr float kSliceNanoseconds = 30'000;
inline constexpr float kBytesPerNanosecond = 16;  // what one core moves, about

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Elements a slice, of `total` that cost `nanoseconds` each. A multiple of `multiple`, so that slices start
// on cache lines.
inline int64_t SliceOf(int64_t total, float nanoseconds, int64_t multiple = 64) {
  const int64_t slice = std::max<int64_t>(1, static_cast<int64_t>(kSliceNanoseconds / nanoseconds));
  if (total <= slice + slice / 2) return std::max<int64_t>(total, 1);
  return CeilDiv(slice, multiple) * multiple;
}

}  // namespace xpud::kernels
