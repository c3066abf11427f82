// What an op is called with, as the rules of its family see it. Plain values; nothing here owns memory.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "proto/ops/op_table.h"

namespace xpud::ops {

// A tensor, or an immediate (data == nullptr, rank 0).
struct Operand {
  void* data = nullptr;  // the daemon's: device memory, already checked against its buffer
  DType dtype = DType::kFloat32;
  uint8_t rank = 0;
  bool present = true;     // false: an optional operand that was left out
  bool immediate = false;  // the value is `number`; dtype says how it takes part
  Number number;
  std::array<int64_t, kMaxRank> sizes{};
  std::array<int64_t, kMaxRank> strides{};  // in elements, outermost first; may be 0, never negative
  // Identifies the bytes: changes with every write to the buffer, is never reused, 0 when unknown. Lets the
  // kernel library keep packed weights.
  uint64_t content = 0;

  bool is_tensor() const { return present && !immediate; }
  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= sizes[d];
    return n;
  }
};

struct Call {
  const Row* row = nullptr;
  DType compute = DType::kFloat32;  // maps and reductions: the promoted type
  std::span<const Operand> outputs;
  // Once a call is checked: as many as the row and its lists say; absent ones have present == false.
  std::span<const Operand> inputs;
  // In the order of the family's schema. A list is its length, then its elements.
  std::span<const Number> attributes;
  // The daemon's: device memory for an error found in index contents. The kernel, which never faults, stores
  // a code there.
  uint64_t* error_word = nullptr;
  std::span<const uint16_t> lists = {};  // lengths of the tensor lists, outputs' lists first
};

}  // namespace xpud::ops
