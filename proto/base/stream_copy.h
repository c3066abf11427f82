// A copy past the cache, for bytes that are part of something larger than it: the target's lines are written
// whole instead of being read first, which saves a third of an ordinary copy's memory traffic. Where the
// target is small or read again soon, memcpy is faster.
#pragma once

#include <emmintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace xpud {

// Pieces of this size on are worth it: a core's second-level cache holds one or two of them.
inline constexpr size_t kStreamCopyBytes = size_t{512} << 10;

// What was copied is visible to whoever sees a release store that follows.
inline void StreamCopy(std::byte* target, const std::byte* source, size_t bytes) {
  constexpr size_t kLine = 64;
  const size_t head = std::min(bytes, -reinterpret_cast<uintptr_t>(target) % kLine);
  std::memcpy(target, source, head);
  const std::byte* const end = source + bytes;
  for (target += head, source += head; source + kLine <= end; target += kLine, source += kLine) {
    const auto* from = reinterpret_cast<const __m128i*>(source);
    auto* to = reinterpret_cast<__m128i*>(target);
    const __m128i line[] = {_mm_loadu_si128(from), _mm_loadu_si128(from + 1), _mm_loadu_si128(from + 2),
                            _mm_loadu_si128(from + 3)};
    for (int i = 0; i < 4; ++i) _mm_stream_si128(to + i, line[i]);
  }
  std::memcpy(target, source, end - source);
  _mm_sfence();  // a release store alone does not order streamed lines
}

}  // namespace xpud
