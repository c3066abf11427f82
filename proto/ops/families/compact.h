// Where the nonzero elements are. Only the device knows how many there are, so there are two commands.
// Count: ends[B] <- self. Element b is the number of nonzero elements up to the end of block b; a block is
// kCountBlock elements in row-major order. The last one is the size of the result.
// Compact: out[size, rank] <- self, ends. Row r has the indices of nonzero element r. Block b writes rows
// ends[b - 1] to ends[b] - 1 and no others; a row that no block writes keeps what it held.
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

template <typename T>
struct CountCall {
  T ends{}, self{};

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.ends, "ends");
    visitor.Input(named.self, "self");
  }
};

template <typename T>
struct CompactCall {
  T out{}, self{}, ends{};

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out", kSized | kUpdated);
    visitor.Input(named.self, "self");
    visitor.Input(named.ends, "ends", kIndices);
  }
};

}  // namespace xpud::ops
