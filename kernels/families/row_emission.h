// Shared by row-wise kernels (softmax, layer norm, losses): loops that are divided among the lanes of a
// group, and sums and maxima over a group. On the host a group is one lane, and these are plain loops that
// LLVM vectorises.
#pragma once

#include <functional>

#include "kernels/compiler/emitter.h"
#include "kernels/families/row_plan.h"

namespace xpud::kernels {

// Returns the sum of all lanes' `value` to all lanes. REQUIRES: all lanes execute it. On the host this is
// `value` itself.
llvm::Value* SumOverGroup(Emitter& emitter, llvm::Value* value);

class RowEmission {
 public:
  using Value = llvm::Value*;
  using Values = std::vector<llvm::Value*>;

  explicit RowEmission(Emitter& emitter) : e_(emitter) {}

  // Runs body(j) for j in [begin, end). REQUIRES: the iterations are independent.
  void ForEach(Value begin, Value end, const std::function<void(Value)>& body);
  // Runs store(j, value(j)) for j in [begin, end). REQUIRES: as ForEach.
  void Transform(Value begin, Value end, const std::function<Value(Value)>& value,
                 const std::function<void(Value, Value)>& store);
  // Returns `count` sums over j in [begin, end) of the values of body(j), to all lanes.
  Values Sum(Value begin, Value end, Scalar type, size_t count, const std::function<Values(Value)>& body);
  // Returns the largest body(j) to all lanes: NaN if any is NaN, -inf for an empty range.
  Value Max(Value begin, Value end, Scalar type, const std::function<Value(Value)>& body);

  // GPUs: declares a row of `n` contiguous elements, which its team holds in registers. A lane has blocks
  // that interleave with the other lanes'. The functions below load, reduce and store it. A team has one row.
  // SumHeld and MaxHeld must not be in a loop that runs twice.
  void HoldRows(Value n, const RowPlan& plan);
  // Returns this lane's elements of the row that starts at element `offset`, or only those of its block `c`.
  Values LoadHeld(ops::DType type, Value base, Value offset, Scalar as);
  Values LoadBlockHeld(size_t c, ops::DType type, Value base, Value offset, Scalar as);
  // Calls then(c, first) for each block `c` inside the row, whose first value is number `first` of the
  // lane's.
  void ForEachBlockHeld(const std::function<void(size_t c, size_t first)>& then);
  void StoreBlockHeld(size_t c, ops::DType type, Value base, Value offset, const Values& values, Scalar from);
  size_t block() const { return static_cast<size_t>(block_); }
  // Returns the sum of all lanes' values that are inside the row, one for each element.
  Value SumHeld(const Values& values);
  // Returns the sums of several lists at once. May be in a loop.
  Values SumsHeld(const std::vector<Values>& lists);
  Value MaxHeld(const Values& values);
  void StoreHeld(ops::DType type, Value base, Value offset, const Values& values, Scalar from);

  // Calls a function of math.c on one float.
  Value Math(const char* name, Value x, Scalar type);
  // Returns x + y. A vectorised loop may change the order of additions.
  Value AddFreely(Value x, Value y);
  Value Maximum(Value x, Value y);

 private:
  // GPUs: a lane's loop over [begin, end), by several elements at a time and then by single ones.
  Values Unrolled(Value begin, Value end, const Values& carried,
                  const std::function<Values(const Values& places, const Values& carried)>& body);
  static Value InPairs(Values values, const std::function<Value(Value, Value)>& combine);
  // Combines the lanes' values over the group.
  Value Combine(Value value, const std::function<Value(Value, Value)>& combine, bool once = false);

  // Folds this lane's values to one. Values beyond the end of the row are replaced by `identity`.
  Value Fold(const Values& values, double identity, const std::function<Value(Value, Value)>& combine);

  Emitter& e_;
  int block_ = 1;  // elements
  Values at_;      // start of each block, moved into the row
  Values inside_;  // i1: whether the block was not moved
};

}  // namespace xpud::kernels
