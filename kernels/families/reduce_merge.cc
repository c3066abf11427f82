// The second kernel of a reduction that is cut into parts: merges their states.
#include <vector>

#include "kernels/families/cascade.h"
#include "kernels/families/reduce_emission.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

absl::Status ReduceMergeSkeleton::EmitBody(const ReduceKey& key,
                                           const ReduceMergeArguments<Emitted>& arguments, Emitter& e) const {
  using Value = llvm::Value*;
  using Values = std::vector<llvm::Value*>;
  using State = MonoidEmission::State;
  ASSIGN_OR_RETURN(const ReduceFormula formula, ParseReduce(key.row->formula));
  MonoidEmission monoid(e, formula, key.accumulate);
  BindReduction(key, arguments, e, monoid);
  Value const items = arguments.items, slice = arguments.item_slice, parts = arguments.parts;
  const auto load = [&](Value item, Value part) {
    State state;
    for (size_t c = 0; c < monoid.components(); ++c) {
      Value const at = e.Add(e.Mul(part, items), item);
      state.push_back(e.LoadRaw(e.TypeOf(monoid.TypeOf(c)), StatesOfReduction(e, arguments, c), at));
    }
    return state;
  };
  if (key.warps) e.UseWarps();
  Value const begin = e.Mul(e.Team(), slice);
  Value const end = e.Min(e.Add(begin, slice), items);
  const auto store = [&](Value item, const State& state) {
    const std::vector<Typed> results = monoid.Finish(state, 1);
    const Values offsets = OffsetsOf(e, arguments.kept, item, key.kept, results.size());
    for (size_t o = 0; o < results.size(); ++o)
      e.Store(key.outputs[o], arguments.outputs[o], offsets[o], results[o].value, results[o].scalar);
  };
  const auto merge = [&](const Values& x, const Values& y) { return monoid.Merge(x, y, 1); };
  if (key.warps) {
    e.Loop(begin, end, e.I64(1), [&](Value item) {
      const State mine = e.Loop(e.Lane(), parts, e.Lanes(), monoid.Init(1),
                                [&](Value part, const Values& now) { return merge(now, load(item, part)); });
      const State state = monoid.MergeGroup(mine);
      e.If(e.ir().CreateICmpEQ(e.Lane(), e.I64(0)), [&] { store(item, state); });
    });
  } else {
    e.Loop(e.Add(begin, e.Lane()), end, e.Lanes(), [&](Value item) {
      Cascade cascade(e, monoid.Init(1), merge);
      store(item, cascade.Fold(e.I64(0), parts, e.I64(kChain), [&](Value from, Value to) {
        return e.Loop(e.Add(from, e.I64(1)), to, e.I64(1), load(item, from),
                      [&](Value part, const Values& now) { return merge(now, load(item, part)); });
      }));
    });
  }
  return monoid.status();
}

}  // namespace xpud::kernels
