// The key that selects a kernel. Plain values.
//
// A family's key is a struct whose Visit names each field once, with its width in bits: `visit(type, 4);
// visit(contiguous, 1);`. PackKey and UnpackKey call it.
#pragma once

#include <array>
#include <cstdint>

#include "proto/base/check.h"
#include "proto/ops/op_table.h"

namespace xpud::kernels {

// A packed key: the skeleton's number in the low kSkeletonBits, then the key's fields.
struct KernelKey {
  std::array<uint64_t, 4> words{};

  bool operator==(const KernelKey&) const = default;
};
inline constexpr int kSkeletonBits = 8;
inline constexpr int kRowBits = 10;  // for a row, by number

// Writes fields of up to 63 bits, low bits first. Always inlined, because every plan uses it.
//
// If a value is wider than its field, or the key is full, that is a bug: clients' data reaches a key only as
// a row, a type, a rank or a choice of the planner.
class KeyWriter {
 public:
  explicit KeyWriter(uint8_t skeleton) { Put(skeleton, kSkeletonBits); }

  template <typename Field>
  [[gnu::always_inline]] void operator()(const Field& field, int bits) {
    Put(static_cast<uint64_t>(field), bits);
  }
  [[gnu::always_inline]] void operator()(const ops::Row* row, int bits) { Put(row->number, bits); }
  KernelKey Finish() {
    XPUD_CHECK(excess_ == 0 && 64 * full_ + static_cast<size_t>(used_) <= 64 * key_.words.size());
    if (used_ > 0) key_.words[full_] = word_;
    return key_;
  }

 private:
  [[gnu::always_inline]] void Put(uint64_t value, int bits) {
    excess_ |= value >> bits;
    word_ |= value << used_;
    used_ += bits;
    if (used_ < 64) return;
    key_.words[full_++ % key_.words.size()] = word_;
    used_ -= 64;
    word_ = used_ == 0 ? 0 : value >> (bits - used_);
  }

  KernelKey key_;
  size_t full_ = 0;  // full words
  uint64_t word_ = 0;
  int used_ = 0;         // bits of `word_`
  uint64_t excess_ = 0;  // bits of values beyond their fields
};

class KeyReader {
 public:
  explicit KeyReader(const KernelKey& key) : key_(key) {}

  template <typename Field>
  void operator()(Field& field, int bits) {
    field = static_cast<Field>(Take(bits));
  }
  void operator()(const ops::Row*& row, int bits) { row = ops::FindRow(static_cast<uint16_t>(Take(bits))); }

 private:
  uint64_t Take(int bits) {
    const size_t word = at_ / 64, shift = at_ % 64;
    at_ += static_cast<size_t>(bits);
    XPUD_CHECK(at_ <= 64 * key_.words.size());
    uint64_t value = key_.words[word] >> shift;
    if (shift + static_cast<size_t>(bits) > 64) value |= key_.words[word + 1] << (64 - shift);
    return value & ((uint64_t{1} << bits) - 1);
  }

  const KernelKey& key_;
  size_t at_ = kSkeletonBits;
};

template <typename Key>
[[gnu::flatten]] KernelKey PackKey(uint8_t skeleton, Key key) {
  KeyWriter writer(skeleton);
  key.Visit(writer);
  return writer.Finish();
}

template <typename Key>
Key UnpackKey(const KernelKey& packed) {
  KeyReader reader(packed);
  Key key;
  key.Visit(reader);
  return key;
}

}  // namespace xpud::kernels
