// The reductions and scans of loop kernels: states, which loops carry, as IR values.
#pragma once

#include "kernels/compiler/emitter.h"
#include "kernels/families/row_emission.h"
#include "proto/loops/kernel.h"

namespace xpud::kernels {

// One pass of a reduction (PassesOf): 0, or 1 for the second one.
class ReductionEmission {
 public:
  using Value = llvm::Value*;
  using Values = std::vector<llvm::Value*>;

  ReductionEmission(Emitter& emitter, loops::Reduction reduction, Scalar scalar, int pass)
      : e_(emitter), rows_(emitter), reduction_(reduction), scalar_(scalar), pass_(pass) {}

  // The state of no values.
  Values Empty();
  // The state after one more: `values` are what the reduction takes. `before`: what the first pass gave.
  Values Take(const Values& state, const Values& values, const Values& before);
  Values Merge(const Values& a, const Values& b);
  // What it gives for no positions, and for two parts, from what it gives for each.
  Values EmptyGiven();
  Values MergeGiven(const Values& a, const Values& b);
  // What the reduction gives after its last pass, else what the next pass needs. `count`: positions (i64).
  Values Finish(const Values& state, const Values& before, Value count);

 private:
  Value Add(Value a, Value b);
  Value Multiply(Value a, Value b);
  Value Extreme(Value a, Value b, bool largest);
  // Of (value, position) pairs, the one that wins.
  Values Winner(const Values& a, const Values& b);
  Value Exp(Value x);
  Value Identity(bool lowest);
  // a / b, or 0 where b is 0.
  Value Ratio(Value a, Value b);
  bool IsReal() const { return IsFloat(scalar_); }

  Emitter& e_;
  RowEmission rows_;
  const loops::Reduction reduction_;
  const Scalar scalar_;
  const int pass_;
};

}  // namespace xpud::kernels
