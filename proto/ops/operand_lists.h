// The operands of a call that are all in lists, and whose lists correspond: element i of each output list is
// computed from element i of the input lists. A list of one operand serves all elements; an optional list may
// be empty. See FamilyDescriptor::lists_correspond. A plain value; refers to the call's operands.
#pragma once

#include <array>
#include <cstddef>

#include "proto/base/check.h"
#include "proto/ops/operand.h"

namespace xpud::ops {

class OperandLists {
 public:
  static constexpr size_t kMaxLists = 12;

  // REQUIRES: the lengths of the lists account for all operands (proto/ops/check.h).
  explicit OperandLists(const Call& call) : count_(call.lists.size()) {
    XPUD_CHECK(count_ <= kMaxLists);
    size_t passed = 0;
    for (size_t list = 0; list < count_; ++list) {
      const size_t of_outputs = call.outputs.size();
      const bool output = passed < of_outputs;
      begin_[list] = output ? call.outputs.data() + passed : call.inputs.data() + (passed - of_outputs);
      length_[list] = call.lists[list];
      passed += length_[list];
    }
  }

  size_t lists() const { return count_; }
  // The number of elements: the length of the first list.
  size_t size() const { return length_[0]; }
  size_t length(size_t list) const { return length_[list]; }
  // Returns true if one operand serves all elements.
  bool IsShared(size_t list) const { return length_[list] == 1; }
  // REQUIRES: the list is not empty.
  const Operand& At(size_t list, size_t element) const { return begin_[list][IsShared(list) ? 0 : element]; }
  // The same for an input of a map, which may be of rank 0 beside an output of any rank.
  Operand InputAt(size_t list, size_t element) const {
    Operand input = At(list, element);
    if (!input.is_tensor() || input.rank > 0) return input;
    input.rank = At(0, element).rank;
    input.sizes.fill(1);
    input.strides.fill(0);
    return input;
  }

 private:
  const size_t count_;
  std::array<const Operand*, kMaxLists> begin_{};
  std::array<size_t, kMaxLists> length_{};
};

}  // namespace xpud::ops
