// What both forms of a reduction's kernel emit, for the host and for GPUs: places of elements, the walk over
// the reduced space, results. Used once, on one thread.
#pragma once

#include <functional>
#include <vector>

#include "kernels/compiler/emitter.h"
#include "kernels/families/monoid_emission.h"
#include "kernels/families/reduce.h"

namespace xpud::kernels {

// Binds a kernel's attribute, if its key has one, and count.
template <typename Arguments>
void BindReduction(const ReduceKey& key, const Arguments& arguments, Emitter& e, MonoidEmission& monoid) {
  const Scalar passed = IsFloat(key.accumulate) ? key.accumulate : Scalar::kI64;
  monoid.Bind(key.attribute ? e.Convert(arguments.attribute, passed, key.accumulate) : nullptr,
              arguments.count);
}

// Returns component `c` of the states in the workspace. Layout [component][part][item], with room for 8 bytes
// in each place.
template <typename Arguments>
llvm::Value* StatesOfReduction(Emitter& e, const Arguments& arguments, size_t c) {
  llvm::Value* const before = e.Mul(e.I64(static_cast<int64_t>(c)), e.Mul(arguments.parts, arguments.items));
  return e.Address(ops::DType::kInt64, arguments.states, before);
}

class ReduceEmission {
 public:
  using Value = llvm::Value*;
  using Values = std::vector<llvm::Value*>;
  using State = MonoidEmission::State;

  ReduceEmission(const ReduceKey& key, const ReduceArguments<Emitted>& arguments,
                 const ReduceFormula& formula, Emitter& emitter)
      : key_(key), args_(arguments), e_(emitter), monoid_(emitter, formula, key.accumulate) {
    BindReduction(key, arguments, emitter, monoid_);
  }

 protected:
  Value KeptSize(int d) const { return args_.kept.sizes[static_cast<size_t>(d)]; }
  Value ReducedSize(int d) const { return args_.reduced.sizes[static_cast<size_t>(d)]; }
  size_t inputs() const { return key_.row->inputs; }
  Value InnerStride(size_t input) const;
  Value InnerSize() const { return ReducedSize(key_.reduced - 1); }
  // Offsets at a kept item.
  struct Place {
    Values outputs, inputs;
  };
  // Returns the place of item `item` over the first `dims` kept dimensions.
  Place PlaceOf(Value item, int dims);
  // Returns the inputs' offsets at the outer reduced index `outer`, after `bases`.
  Values RowsAt(const Values& bases, Value outer);
  // Returns the offsets at element `j` of the innermost reduced dimension. Rows: j is the first lane's.
  Values ElementsAt(const Values& rows, Value j);
  // Returns the offsets `lanes` columns further.
  Values ColumnsAt(const Values& offsets, Value lanes);
  // Loads the inputs' elements of `width` lanes.
  Values Load(const Values& offsets, int width);
  // How one lane walks through the group's part of the reduced space.
  struct Walk {
    int64_t inner_stride = 1;  // elements that a step takes from the innermost dimension
    int width = 1;             // of a vector, after whole steps; single elements follow
    Value outer_first = nullptr;
    int64_t outer_stride = 1;
  };
  using Stretch = std::function<Values(Value outer, Value from, Value to, const Values& now)>;
  // Folds the group's part of the reduced space. run(outer, from, to, states) takes elements [from, to) of
  // the innermost dimension at outer index `outer` into `states`, which begin as `start`. Chains of them are
  // short: each ends with finish(states), and `merge` joins the results. `empty` is the result of no
  // elements.
  Values FoldSpace(const Walk& walk, const Values& start, const Stretch& run,
                   const std::function<Values(const Values&)>& finish, const Values& empty,
                   const std::function<Values(const Values&, const Values&)>& merge);
  // Merges lists of states, each of `width` lanes.
  Values MergeAll(const Values& x, const Values& y, int width);
  static void Append(Values& to, const State& from) { to.insert(to.end(), from.begin(), from.end()); }
  State Slice(const Values& carried, size_t index) const;
  // Stores `width` results at output offsets `offsets`, or states from kept item `item` on.
  void StoreResult(const State& state, const Values& offsets, Value item, int width);
  // Calls body(item, place) for each item of the team.
  void EmitRows(const std::function<void(Value item, const Place& place)>& body);

  const ReduceKey& key_;
  const ReduceArguments<Emitted>& args_;
  Emitter& e_;
  MonoidEmission monoid_;

 private:
  Value Outer() const;
  Value Part();
  Values Sums(const Values& a, const Values& b);
  // Returns how many outer indices fit into a chain, at `length` elements each.
  Value OuterBlock(const Walk& walk, Value length);
  Value IsZero(Value x) { return e_.ir().CreateICmpEQ(x, e_.I64(0)); }
};

// Emit the kernel's body.
absl::Status EmitHostReduction(const ReduceKey& key, const ReduceArguments<Emitted>& arguments,
                               const ReduceFormula& formula, Emitter& e);
absl::Status EmitGpuReduction(const ReduceKey& key, const ReduceArguments<Emitted>& arguments,
                              const ReduceFormula& formula, Emitter& e);

}  // namespace xpud::kernels
