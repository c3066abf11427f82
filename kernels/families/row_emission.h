// What row-wise kernels (softmax, layer norm, losses) share: loops that the lanes of a group divide among
// them, and sums and maxima over a group. On the host a group is one lane, and these are plain loops that
// LLVM vectorises.
#pragma once

#include <functional>

#include "kernels/compiler/emitter.h"
#include "kernels/families/row_plan.h"

namespace xpud::kernels {

// The sum of every lane's `value`, known to all lanes. All lanes must get here. On the host a group is one
// lane: `value` itself.
llvm::Value* SumOverGroup(Emitter& emitter, llvm::Value* value);

class RowEmission {
 public:
  using Value = llvm::Value*;
  using Values = std::vector<llvm::Value*>;

  explicit RowEmission(Emitter& emitter) : e_(emitter) {}

  // body(j) for j in [begin, end), independent of each other.
  void ForEach(Value begin, Value end, const std::function<void(Value)>& body);
  // Sums over j in [begin, end) of the values that body(j) gives, one for each of `count`; known to all
  // lanes.
  Values Sum(Value begin, Value end, Scalar type, size_t count, const std::function<Values(Value)>& body);
  // The largest body(j), NaN if any is; known to all lanes. -inf for an empty range.
  Value Max(Value begin, Value end, Scalar type, const std::function<Value(Value)>& body);

  // GPUs: a row of `n` elements, contiguous, held in registers by its team: a lane has blocks that interleave
  // with the other lanes'. What follows loads, reduces and stores it. A team has one row.
  // SumHeld and MaxHeld must not be in a loop that runs twice.
  void HoldRows(Value n, const RowPlan& plan);
  // This lane's elements of the row that starts at element `offset`; or those of its block `c` only.
  Values LoadHeld(ops::DType type, Value base, Value offset, Scalar as);
  Values LoadBlockHeld(size_t c, ops::DType type, Value base, Value offset, Scalar as);
  // then(c, first): for each block `c` within the row, whose first value is number `first` of a lane's.
  void ForEachBlockHeld(const std::function<void(size_t c, size_t first)>& then);
  void StoreBlockHeld(size_t c, ops::DType type, Value base, Value offset, const Values& values, Scalar from);
  size_t block() const { return static_cast<size_t>(block_); }
  // Of all lanes' values, one an element, that are within the row.
  Value SumHeld(const Values& values);
  // Of several lists in one go; may be in a loop.
  Values SumsHeld(const std::vector<Values>& lists);
  Value MaxHeld(const Values& values);
  void StoreHeld(ops::DType type, Value base, Value offset, const Values& values, Scalar from);

  // A call of a function of math.c on one float.
  Value Math(const char* name, Value x, Scalar type);
  // x + y, where a vectorised loop may change the order of additions.
  Value AddFreely(Value x, Value y);
  Value Maximum(Value x, Value y);

 private:
  // Combines each lane's value over the group.
  Value Combine(Value value, const std::function<Value(Value, Value)>& combine, bool once = false);

  // This lane's values, those beyond the row's end replaced, folded to one.
  Value Fold(const Values& values, double identity, const std::function<Value(Value, Value)>& combine);

  Emitter& e_;
  int block_ = 1;  // elements
  Values at_;      // where each block starts, moved into the row
  Values inside_;  // i1: whether it does so unmoved
};

}  // namespace xpud::kernels
