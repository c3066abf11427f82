// How a GPU's lanes share rows that a kernel works on one by one (softmax, layer norm). A plain value; part
// of kernels' keys.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "kernels/families/layout.h"
#include "kernels/families/slices.h"

namespace xpud::kernels {

struct RowPlan {
  bool warps = false;  // a warp takes a row, instead of a group
  int block = 1;       // contiguous elements that a lane takes at once: 1, 2, 4 or 8
  int blocks = 0;  // blocks of a row that a lane holds in registers. 0: rows are too long and are read again

  // Lanes that share a row.
  int64_t lanes() const { return warps ? kTeamOfWarp : kTeamOfGroup; }
  int64_t rows_a_group() const { return warps ? kTeamOfGroup / kTeamOfWarp : 1; }

  [[gnu::always_inline]] void Visit(auto& visit) {
    visit(warps, 1);
    visit(block, 4);
    visit(blocks, 6);
  }

  static constexpr int64_t kTeamOfWarp = 32, kTeamOfGroup = 256;
};

// Plans rows of `n` elements. A lane holds the elements of `operands` rows. `block` elements are aligned in
// every row.
inline RowPlan PlanRows(int64_t rows, int64_t n, int block, int operands) {
  const int64_t kMaxElements = operands > 1 ? 16 : 32;  // of each row, in a lane
  RowPlan plan;
  plan.block = block;
  plan.warps = n <= kMaxElements * RowPlan::kTeamOfWarp && (n <= 512 || rows >= 2048);
  const int64_t blocks = CeilDiv(n, plan.lanes() * block);
  if (blocks * block <= kMaxElements) plan.blocks = static_cast<int>(blocks);
  return plan;
}

// Returns the largest aligned block of up to kBlockBytes. `strides` are the distances between rows, in
// elements.
inline int RowBlock(int64_t n, std::initializer_list<const Operand*> operands,
                    std::initializer_list<int64_t> strides) {
  int64_t together = n;
  for (const int64_t stride : strides) together |= stride;
  size_t largest = 1;
  for (const Operand* const operand : operands) largest = std::max(largest, ops::SizeOf(operand->dtype));
  int block = static_cast<int>(std::min<size_t>(8, 16 / largest));
  const auto aligned = [&] {
    if (together % block != 0) return false;
    for (const Operand* const operand : operands) {
      if (reinterpret_cast<uintptr_t>(operand->data) %
              (static_cast<size_t>(block) * ops::SizeOf(operand->dtype)) !=
          0)
        return false;
    }
    return true;
  };
  while (block > 1 && !aligned()) block /= 2;
  return block;
}

}  // namespace xpud::kernels
