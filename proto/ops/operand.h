// The operands of a call, as the rules of families see them. Plain values; nothing here owns memory.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "proto/ops/op_table.h"

namespace xpud::ops {

// A tensor, or an immediate (data == nullptr, rank 0).
struct Operand {
  void* data = nullptr;  // set by the daemon: device memory, already checked against its buffer
  DType dtype = DType::kFloat32;
  uint8_t rank = 0;
  bool present = true;     // false: an absent optional operand
  bool immediate = false;  // the value is `number`; dtype is its type for promotion
  Number number = {};
  std::array<int64_t, kMaxRank> sizes{};
  std::array<int64_t, kMaxRank> strides{};  // in elements, outermost first; may be 0, never negative
  // Identifies the contents. It changes with every write to the buffer, and is never reused. 0 if unknown.
  // The kernel library uses it to keep packed weights.
  uint64_t content = 0;

  bool is_tensor() const { return present && !immediate; }
  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= sizes[d];
    return n;
  }
};

// A kernel that a client has defined, and its call, as the rules of ops see them.
struct KernelOfCall {
  std::string_view name;      // its client's, for people
  std::vector<bool> updated;  // of each output: it depends on what it held
  double operations = 0;      // see CostOf
  bool reports = false;       // it may store a code in Call::error_word
};

struct Call {
  const Row* row = nullptr;
  DType compute = DType::kFloat32;  // maps and reductions: the promoted type
  std::span<const Operand> outputs;
  // In a checked call, the row and its lists determine the number of inputs; absent ones have present ==
  // false.
  std::span<const Operand> inputs;
  // In the order of the family's schema. A list is its length followed by its elements.
  std::span<const Number> attributes;
  // Set by the daemon: device memory in which a kernel stores a code if it finds an invalid index. Kernels
  // never fault on an index.
  uint64_t* error_word = nullptr;
  std::span<const uint16_t> lists = {};  // lengths of the tensor lists, outputs' lists first
  // Set by the daemon, for families that run one. A loops::DefinedCall (proto/loops/definition.h).
  const KernelOfCall* kernel = nullptr;
};

}  // namespace xpud::ops
