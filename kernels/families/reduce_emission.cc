#include "kernels/families/reduce_emission.h"

#include "kernels/families/cascade.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

ReduceEmission::Value ReduceEmission::InnerStride(size_t input) const {
  return args_.reduced.strides[input][static_cast<size_t>(key_.reduced - 1)];
}

ReduceEmission::Value ReduceEmission::Outer() const {
  Value outer = e_.I64(1);
  for (int d = 0; d < key_.reduced - 1; ++d) outer = e_.Mul(outer, ReducedSize(d));
  return outer;
}

ReduceEmission::Value ReduceEmission::Part() {
  return e_.Add(e_.Mul(e_.Group(1), e_.CeilDiv(InnerSize(), args_.inner_slice)), e_.Group(2));
}

ReduceEmission::Place ReduceEmission::PlaceOf(Value item, int dims) {
  const auto stored = static_cast<ptrdiff_t>(key_.stored());
  const Values all = OffsetsOf(e_, args_.kept, item, dims, static_cast<size_t>(stored) + inputs());
  return {Values(all.begin(), all.begin() + stored), Values(all.begin() + stored, all.end())};
}

ReduceEmission::Values ReduceEmission::RowsAt(const Values& bases, Value outer) {
  return Sums(bases, OffsetsOf(e_, args_.reduced, outer, key_.reduced - 1, inputs()));
}

ReduceEmission::Values ReduceEmission::ElementsAt(const Values& rows, Value j) {
  Values offsets = rows;
  for (size_t i = 0; i < inputs(); ++i) {
    const bool lanes = !key_.columns && key_.vector;
    if (!(lanes && key_.spread[i])) offsets[i] = e_.Add(rows[i], lanes ? j : e_.Mul(j, InnerStride(i)));
  }
  return offsets;
}

ReduceEmission::Values ReduceEmission::ColumnsAt(const Values& offsets, Value lanes) {
  Values moved = offsets;
  for (size_t i = 0; i < inputs(); ++i)
    if (!key_.spread[i]) moved[i] = e_.Add(offsets[i], lanes);
  return moved;
}

ReduceEmission::Values ReduceEmission::Sums(const Values& a, const Values& b) {
  Values sums;
  for (size_t i = 0; i < a.size(); ++i) sums.push_back(e_.Add(a[i], b[i]));
  return sums;
}

ReduceEmission::Values ReduceEmission::Load(const Values& offsets, int width) {
  Values elements;
  for (size_t i = 0; i < inputs(); ++i) {
    const bool spread = width > 1 && key_.spread[i];
    Value const element =
        e_.Load(key_.inputs[i], args_.inputs[i], offsets[i], key_.accumulate, spread ? 1 : width);
    elements.push_back(spread ? e_.ir().CreateVectorSplat(static_cast<unsigned>(width), element) : element);
  }
  return elements;
}

ReduceEmission::Values ReduceEmission::FoldSpace(
    const Walk& walk, const Values& start, const Stretch& run,
    const std::function<Values(const Values&)>& finish, const Values& empty,
    const std::function<Values(const Values&, const Values&)>& merge) {
  Value const begin = e_.Mul(e_.Group(2), args_.inner_slice);
  Value const end = e_.Min(e_.Add(begin, args_.inner_slice), InnerSize());
  Value const steps = e_.I64(kChain * walk.inner_stride);
  Cascade cascade(e_, empty, merge);
  // Integers do not round.
  const auto fold = [&](Value from, Value to, Value block, const auto& body) {
    return IsFloat(key_.accumulate) ? cascade.Fold(from, to, block, body) : body(from, to);
  };
  if (key_.reduced == 1) {
    return fold(begin, end, steps,
                [&](Value from, Value to) { return finish(run(e_.I64(0), from, to, start)); });
  }
  Value const outer_begin = e_.Mul(e_.Group(1), args_.outer_slice);
  Value const outer_end = e_.Min(e_.Add(outer_begin, args_.outer_slice), Outer());
  Value const block = OuterBlock(walk, e_.ir().CreateSub(end, begin));
  return fold(outer_begin, outer_end, block, [&](Value outer_from, Value outer_to) {
    return fold(begin, end, steps, [&](Value from, Value to) {
      Value const first = walk.outer_first == nullptr ? outer_from : e_.Add(outer_from, walk.outer_first);
      return finish(e_.Loop(first, outer_to, e_.I64(walk.outer_stride), start,
                            [&](Value outer, const Values& now) { return run(outer, from, to, now); }));
    });
  });
}

ReduceEmission::Value ReduceEmission::OuterBlock(const Walk& walk, Value length) {
  Value steps = e_.CeilDiv(length, e_.I64(walk.inner_stride));
  if (walk.width > 1) {
    const auto rest = [&](Value x, int64_t y) { return e_.ir().CreateURem(x, e_.I64(y)); };
    Value const whole = e_.ir().CreateUDiv(length, e_.I64(walk.inner_stride));
    Value const vectors = e_.ir().CreateUDiv(rest(length, walk.inner_stride), e_.I64(walk.width));
    steps = e_.Add(e_.Add(whole, vectors), rest(length, walk.width));
  }
  Value const indices = e_.CeilDiv(e_.I64(kChain), e_.ir().CreateSelect(IsZero(steps), e_.I64(1), steps));
  return e_.Mul(indices, e_.I64(walk.outer_stride));
}

ReduceEmission::Values ReduceEmission::MergeAll(const Values& x, const Values& y, int width) {
  Values merged;
  for (size_t i = 0; i < x.size() / monoid_.components(); ++i)
    Append(merged, monoid_.Merge(Slice(x, i), Slice(y, i), width));
  return merged;
}

ReduceEmission::State ReduceEmission::Slice(const Values& carried, size_t index) const {
  const auto first = carried.begin() + static_cast<ptrdiff_t>(index * monoid_.components());
  return {first, first + static_cast<ptrdiff_t>(monoid_.components())};
}

void ReduceEmission::StoreResult(const State& state, const Values& offsets, Value item, int width) {
  if (!key_.partial) {
    const std::vector<Typed> results = monoid_.Finish(state, width);
    for (size_t o = 0; o < results.size(); ++o) {
      e_.Store(key_.outputs[o], args_.outputs[o], offsets[o], results[o].value, results[o].scalar, width);
    }
    return;
  }
  for (size_t c = 0; c < state.size(); ++c) {
    Value const at = e_.Add(e_.Mul(Part(), args_.items), item);
    e_.StoreRaw(StatesOfReduction(e_, args_, c), at, state[c]);
  }
}

void ReduceEmission::EmitRows(const std::function<void(Value item, const Place& place)>& body) {
  Value const begin = e_.Mul(e_.Team(), args_.item_slice);
  Value const end = e_.Min(e_.Add(begin, args_.item_slice), args_.items);
  e_.Loop(begin, end, e_.I64(1), [&](Value item) { body(item, PlaceOf(item, key_.kept)); });
}

absl::Status ReduceSkeleton::EmitBody(const ReduceKey& key, const ReduceArguments<Emitted>& arguments,
                                      Emitter& e) const {
  ASSIGN_OR_RETURN(const ReduceFormula formula, ParseReduce(key.row->formula));
  return (e.gpu() ? EmitGpuReduction : EmitHostReduction)(key, arguments, formula, e);
}

}  // namespace xpud::kernels
