// A collapsed iteration space as kernel arguments: its sizes, and the operands' strides.
#pragma once

#include <array>

#include "kernels/compiler/emitter.h"
#include "kernels/families/layout.h"

namespace xpud::kernels {

template <typename Side, size_t kOperands>
struct SpaceArguments {
  typename Side::Integers sizes;
  std::array<typename Side::Integers, kOperands> strides;

  [[gnu::always_inline]] void Visit(int rank, int operands, auto& visit) {
    visit.First(sizes, rank);
    for (size_t o = 0; o < static_cast<size_t>(operands); ++o) visit.First(strides[o], rank);
  }
};

// Passes `layout`: its operand `first` is operand 0 of the space, and so on. `layout` must outlive
// PushArguments.
template <size_t kOperands>
void SetSpace(const Layout& layout, SpaceArguments<Planned, kOperands>& space, size_t first = 0) {
  space.sizes = layout.sizes.data();
  for (size_t o = first; o < static_cast<size_t>(layout.operands); ++o)
    space.strides[o - first] = layout.strides[o].data();
}

// Converts the linear index `item` over the first `dims` dimensions to an offset of each operand.
template <size_t kOperands>
Emitter::Values OffsetsOf(Emitter& e, const SpaceArguments<Emitted, kOperands>& space, Emitter::Value item,
                          int dims, size_t operands) {
  Emitter::Values offsets(operands, e.I64(0));
  for (auto d = static_cast<size_t>(dims); d-- > 0;) {
    Emitter::Value const at = d == 0 ? item : e.ir().CreateURem(item, space.sizes[d]);
    if (d > 0) item = e.ir().CreateUDiv(item, space.sizes[d]);
    for (size_t o = 0; o < operands; ++o) offsets[o] = e.Add(offsets[o], e.Mul(at, space.strides[o][d]));
  }
  return offsets;
}

}  // namespace xpud::kernels
