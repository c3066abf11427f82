// The size that memory is charged as, by both ends of a session: the rounding of the daemon's allocator.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace xpud {

inline constexpr uint64_t kMemoryAlignment = 512;  // of all ranges of device memory
inline constexpr uint64_t kMaxSmallSize = 1 << 20;
inline constexpr uint64_t kLargeSizeStep = 64 << 10;

// Small sizes have four steps for each power of two, from 512 bytes up, so at most a fifth is wasted. Sizes
// above kMaxSmallSize are rounded to multiples of kLargeSizeStep. REQUIRES: `bytes`
// <= 2^63.
constexpr uint64_t RoundSize(uint64_t bytes) {
  if (bytes <= kMemoryAlignment) return kMemoryAlignment;
  const uint64_t step =
      bytes > kMaxSmallSize ? kLargeSizeStep : std::max(kMemoryAlignment, std::bit_floor(bytes - 1) / 4);
  return (bytes + step - 1) / step * step;
}

}  // namespace xpud
