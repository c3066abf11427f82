// The arguments of a compiled loop kernel.
#pragma once

#include <vector>

#include "kernels/compiler/arguments.h"
#include "kernels/compiler/scalar.h"
#include "kernels/loops/variant.h"

namespace xpud::kernels {

template <typename Side>
struct LoopArguments {
  // Of each operand, if it is a buffer, one that is checked, or a scalar.
  std::vector<typename Side::Pointer> buffers;
  std::vector<typename Side::Integer> elements;
  std::vector<typename Side::Immediate> scalars;
  std::vector<typename Side::Integer> sizes;
  typename Side::Pointer error_word;
  typename Side::Integer points, slice;  // of the body; of a group, 0 on GPUs
  // Where it is cut: [value][part][point], 8 bytes each.
  typename Side::Pointer workspace;
  typename Side::Integer parts, part_length;

  void Visit(const LoopVariant& variant, auto& visit) {
    const std::vector<loops::Operand>& operands = variant.kernel().operands;
    buffers.resize(operands.size());
    elements.resize(operands.size());
    scalars.resize(operands.size());
    sizes.resize(variant.kernel().sizes);
    for (uint32_t i = 0; i < operands.size(); ++i) {
      if (operands[i].role == loops::Role::kScalar) {
        visit.Immediate(scalars[i], ScalarOf(operands[i].type));
        continue;
      }
      visit(buffers[i]);
      if (variant.checks(i)) visit(elements[i]);
    }
    for (auto& size : sizes) visit(size);
    if (variant.reports()) visit(error_word);
    visit(points, slice);
    if (variant.call().stage != LoopStage::kWhole) visit(workspace, parts, part_length);
  }
};

}  // namespace xpud::kernels
