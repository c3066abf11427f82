// A validated op: what the daemon hands to a planner. Plain values; engine thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "proto/ops/op_table.h"

namespace xpud::kernels {

// A tensor in device memory, already checked against its buffer, or an immediate (data == nullptr, rank 0).
struct Operand {
  void* data = nullptr;
  ops::DType dtype = ops::DType::kFloat32;
  uint8_t rank = 0;
  bool present = true;     // false: an optional input that was left out
  bool immediate = false;  // value is in `number`; dtype says how it takes part
  ops::Number number;
  std::array<int64_t, ops::kMaxRank> sizes{};
  std::array<int64_t, ops::kMaxRank> strides{};  // in elements, outermost first; may be 0, never negative
  // Identifies what the bytes are: changes with every write to the buffer, is never reused, 0 when unknown.
  // Lets the library keep packed weights.
  uint64_t content = 0;

  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= sizes[d];
    return n;
  }
};

// A validated op: shapes, types and bounds follow the row's family; no operand overlaps an output except
// exactly (in-place).
struct OpCall {
  const ops::Row* row = nullptr;
  ops::DType compute = ops::DType::kFloat32;  // maps and reductions: the promoted type
  std::span<const Operand> outputs;
  std::span<const Operand> inputs;  // always row->inputs of them; absent ones have present == false
  std::span<const ops::Number> attributes;
  // Device memory for an error found in index contents: the kernel stores (kernels never fault) a non-zero
  // code here. See `DeviceError`.
  uint64_t* error_word = nullptr;
};

// What kernels store in error_word: code in the low 8 bits, the offending value (truncated) above.
enum class DeviceError : uint8_t { kNone = 0, kIndexOutOfRange = 1 };

}  // namespace xpud::kernels
