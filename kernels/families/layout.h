// The iteration space of an element-wise op: sizes, and each operand's strides, with as few dimensions as
// possible. A plain value, without allocation; the library's thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/api/op_call.h"

namespace xpud::kernels {

inline constexpr int kMaxOperands = ops::kMaxOutputs + ops::kMaxInputs;

// How the innermost dimension of an operand is stepped through. Two bits of a kernel's key.
enum class Access : uint8_t {
  kImmediate = 0,  // passed by value, not in memory
  kContiguous = 1,
  kBroadcast = 2,  // stride 0
  kStrided = 3,
};

struct Layout {
  int rank = 0;  // at least 1 after Collapse
  int operands = 0;
  std::array<int64_t, ops::kMaxRank> sizes{};
  std::array<std::array<int64_t, ops::kMaxRank>, kMaxOperands> strides{};

  // Returns a layout of the sizes of `shape`, without operands.
  static Layout Over(const Operand& shape);
  // Adds an operand. An immediate has stride 0. Dimensions of size 1 that are larger in the layout are
  // broadcast.
  void AddOperand(const Operand& operand);

  // Drops dimensions of size 1, sorts by operand 0's strides if `may_permute`, and merges neighbours.
  void Collapse(bool may_permute);
  int64_t numel() const;
  int64_t inner() const { return sizes[static_cast<size_t>(rank - 1)]; }
  int64_t stride(int operand, int dim) const {
    return strides[static_cast<size_t>(operand)][static_cast<size_t>(dim)];
  }
  Access AccessOf(int operand) const;
  // Returns true if all offsets and the element count fit in 31 bits, and no stride is negative.
  bool Fits32() const;
};

}  // namespace xpud::kernels
