// Dropout of attention's weights. Device code only.
#pragma once

#include "kernels/library/gpu/attention_arguments.h"
#include "kernels/library/gpu/device.h"

namespace xpud::gpu {

struct Words {
  uint32_t w0, w1, w2, w3;
};

// Philox4x32-10 (Salmon et al., 2011), counter {block, 0, 0}.
XPUD_DEVICE Words Philox(uint64_t seed, uint64_t block) {
  uint32_t c0 = static_cast<uint32_t>(block), c1 = static_cast<uint32_t>(block >> 32), c2 = 0, c3 = 0;
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(c0) * 0xD2511F53u, p1 = static_cast<uint64_t>(c2) * 0xCD9E8D57u;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

XPUD_DEVICE uint64_t ElementOf(const AttentionArguments& p, int64_t b, int64_t h, int64_t row, int64_t key) {
  return static_cast<uint64_t>(((b * p.heads + h) * p.queries + row) * p.keys + key);
}

XPUD_DEVICE Words WordsOf(const AttentionArguments& p, uint64_t block) {
  return Philox(p.seed, p.offset + block);
}

// `place` is the element's number modulo 4.
XPUD_DEVICE bool Keeps(const AttentionArguments& p, const Words& words, uint32_t place) {
  const uint32_t low = (place & 1) != 0 ? words.w1 : words.w0, high = (place & 1) != 0 ? words.w3 : words.w2;
  return ((place & 2) != 0 ? high : low) >> 8 >= p.threshold;
}

// Returns the factor of an element's weight.
template <typename W>
XPUD_DEVICE W FactorOf(const AttentionArguments& p, uint64_t element) {
  if (p.threshold == 0) return W(1);
  return Keeps(p, WordsOf(p, element / 4), element % 4) ? static_cast<W>(p.factor) : W(0);
}

// Sets which of four (or two) adjacent elements are kept.
template <int kCount>
XPUD_DEVICE void KeepAdjacent(const AttentionArguments& p, uint64_t element, bool (&kept)[kCount]) {
  static_assert(kCount <= 4);
  const uint32_t place = element % 4;
  const Words first = WordsOf(p, element / 4);
  const Words second = place + kCount > 4 ? WordsOf(p, element / 4 + 1) : first;
#pragma unroll
  for (uint32_t i = 0; i < kCount; ++i)
    kept[i] = place + i < 4 ? Keeps(p, first, place + i) : Keeps(p, second, place + i - 4);
}

}  // namespace xpud::gpu
