// Bytes whose pages differ between seeds in every part.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace xpud::e2e {

inline void Scribble(std::span<std::byte> bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::byte& byte : bytes.first(std::min<size_t>(bytes.size(), 64)))
    byte = static_cast<std::byte>(random());
  for (size_t at = 64; at < bytes.size(); ++at) bytes[at] = bytes[at - 64] ^ static_cast<std::byte>(at >> 12);
}

inline std::vector<std::byte> Scribbled(size_t bytes, uint64_t seed) {
  std::vector<std::byte> made(bytes);
  Scribble(made, seed);
  return made;
}

inline bool Same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace xpud::e2e
