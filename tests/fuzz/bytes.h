// Reads a fuzzed input from its front. Reading past the end gives zeros. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace xpud::fuzz {

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const std::byte*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  std::span<const std::byte> rest() const { return rest_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(rest_.data()), rest_.size()}; }

  template <typename T>
    requires std::is_trivially_copyable_v<T>
  T Take() {
    T value{};
    const std::span<const std::byte> part = Take(sizeof(T));
    if (!part.empty()) std::memcpy(&value, part.data(), part.size());
    return value;
  }
  // Returns the next `bytes`, or fewer at the end.
  std::span<const std::byte> Take(size_t bytes) {
    const std::span<const std::byte> part = rest_.first(std::min(bytes, rest_.size()));
    rest_ = rest_.subspan(part.size());
    return part;
  }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace xpud::fuzz
