// What memory is charged as, by both ends of a session: the rounding of the daemon's allocator.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace xpud {

inline constexpr uint64_t kMemoryAlignment = 512;  // of every range of device memory
inline constexpr uint64_t kMaxSmallSize = 1 << 20;
inline constexpr uint64_t kLargeSizeStep = 64 << 10;

// Small sizes: four steps to each power of two, from 512 bytes up, so that at most a fifth is wasted; sizes
// above kMaxSmallSize are multiples of kLargeSizeStep. `bytes`: up to 2^63.
constexpr uint64_t RoundSize(uint64_t bytes) {
  if (bytes <= kMemoryAlignment) return kMemoryAlignment;
  const uint64_t step =
      bytes > kMaxSmallSize ? kLargeSizeStep : std::max(kMemoryAlignment, std::bit_floor(bytes - 1) / 4);
  return (bytes + step - 1) / step * step;
}

}  // namespace xpud
