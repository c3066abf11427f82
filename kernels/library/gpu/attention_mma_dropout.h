// Factors of dropout for results of mma.m16n8k16. Device code only.
#pragma once

#include "kernels/library/gpu/attention_dropout.h"
#include "kernels/library/gpu/attention_tensor.h"

namespace xpud::gpu {

// For the four results of a lane, in their order.
struct Factors {
  float x[4];
};

XPUD_DEVICE float FactorOfWord(const AttentionArguments& p, uint32_t word) {
  return (word >> 8) >= p.threshold ? static_cast<float>(p.factor) : 0.0f;
}
XPUD_DEVICE Factors FactorsOfWords(const AttentionArguments& p, const Words& words) {
  return {{FactorOfWord(p, words.w0), FactorOfWord(p, words.w1), FactorOfWord(p, words.w2),
           FactorOfWord(p, words.w3)}};
}

// Columns are keys `key` to `key + 7`, and `row` is the lane's first query. `key` is a multiple of 4.
// REQUIRES: all lanes of a warp, because they share blocks of random numbers.
XPUD_DEVICE Factors FactorsOfQueries(const AttentionArguments& p, int64_t b, int64_t h, int64_t row,
                                     int64_t key) {
  const int lane = Lane() % 32;
  if (p.keys % 4 != 0) {
    const int64_t own = key + lane % 4 * 2;
    return {{FactorOf<float>(p, ElementOf(p, b, h, row, own)),
             FactorOf<float>(p, ElementOf(p, b, h, row, own + 1)),
             FactorOf<float>(p, ElementOf(p, b, h, row + 8, own)),
             FactorOf<float>(p, ElementOf(p, b, h, row + 8, own + 1))}};
  }
  // Two adjacent lanes have the four keys of a block, of two queries. The lower one computes that of the
  // first query, the upper one that of the second, and they exchange halves.
  const int64_t query = row + lane % 2 * 8, first = key + lane % 4 / 2 * 4;
  Words words = WordsOf(p, ElementOf(p, b, h, query, first) / 4);
  Exchange(words.w0, words.w2, 1);
  Exchange(words.w1, words.w3, 1);
  return FactorsOfWords(p, words);
}

// The same for transposed results: columns are queries `row` to `row + 7`. Rows are keys: `key`, a multiple
// of 16, is the warp's first. REQUIRES: all lanes of a warp.
XPUD_DEVICE Factors FactorsOfKeys(const AttentionArguments& p, int64_t b, int64_t h, int64_t row,
                                  int64_t key) {
  const int lane = Lane() % 32;
  const int64_t query = row + lane % 4 * 2;
  if (p.keys % 4 != 0) {
    const int64_t own = key + lane / 4;
    return {{FactorOf<float>(p, ElementOf(p, b, h, query, own)),
             FactorOf<float>(p, ElementOf(p, b, h, query + 1, own)),
             FactorOf<float>(p, ElementOf(p, b, h, query, own + 8)),
             FactorOf<float>(p, ElementOf(p, b, h, query + 1, own + 8))}};
  }
  // Four lanes that are 4 apart have the four keys of a block. Each computes the block of one of their four
  // results, and they transpose the words.
  const int result = lane / 4 % 4;
  const int64_t first = key + lane / 16 * 4 + result / 2 * 8;
  Words words = WordsOf(p, ElementOf(p, b, h, query + result % 2, first) / 4);
  Exchange(words.w0, words.w1, 4);
  Exchange(words.w2, words.w3, 4);
  Exchange(words.w0, words.w2, 8);
  Exchange(words.w1, words.w3, 8);
  return FactorsOfWords(p, words);
}

}  // namespace xpud::gpu
