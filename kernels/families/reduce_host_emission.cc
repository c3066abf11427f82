// Reductions on the host: a lane takes vectors.
#include <algorithm>

#include "kernels/families/reduce_emission.h"

namespace xpud::kernels {
namespace {

class HostReduceEmission : public ReduceEmission {
 public:
  HostReduceEmission(const ReduceKey& key, const ReduceArguments<Emitted>& arguments,
                     const ReduceFormula& formula, Emitter& emitter)
      : ReduceEmission(key, arguments, formula, emitter),
        width_(!key.vector                      ? 1
               : key.accumulate == Scalar::kF32 ? 16
                                                : 8),
        unroll_(width_ == 1                 ? 1
                : monoid_.components() == 1 ? 4
                : monoid_.components() == 2 ? 1
                                            : 2) {}

  absl::Status Run() {
    if (key_.columns) {
      EmitColumns();
    } else {
      EmitRows([&](Value item, const Place& place) {
        StoreResult(ReduceRow(place.inputs), place.outputs, item, 1);
      });
    }
    return monoid_.status();
  }

 private:
  Value Position(Value first, int width) {
    if (width == 1) return first;
    std::vector<llvm::Constant*> lanes;
    for (int l = 0; l < width; ++l) lanes.push_back(e_.ir().getInt64(static_cast<uint64_t>(l)));
    return e_.ir().CreateAdd(e_.ir().CreateVectorSplat(static_cast<unsigned>(width), first),
                             llvm::ConstantVector::get(lanes));
  }

  State ReduceRow(const Values& bases) {
    const size_t components = monoid_.components();
    Values empty;
    for (int u = 0; u < unroll_ && width_ > 1; ++u) Append(empty, monoid_.Init(width_));
    Append(empty, monoid_.Init(1));
    const auto tail_of = [&](const Values& states) { return Slice(states, states.size() / components - 1); };
    const auto merge = [&](const Values& x, const Values& y) {
      Values merged;
      for (size_t u = 0; u + 1 < x.size() / components; ++u)
        Append(merged, monoid_.Merge(Slice(x, u), Slice(y, u), width_));
      Append(merged, monoid_.Merge(tail_of(x), tail_of(y), 1));
      return merged;
    };
    Values states = FoldSpace(
        {.inner_stride = width_ == 1 ? 1 : int64_t{width_} * unroll_, .width = width_}, empty,
        [&](Value outer, Value from, Value to, const Values& now) {
          return ReduceInner(RowsAt(bases, outer), e_.Mul(outer, InnerSize()), from, to, now);
        },
        [](const Values& all) { return all; }, empty, merge);
    const size_t vectors = states.size() / components - 1;
    if (vectors == 0) return states;
    State lanes = Slice(states, 0);
    for (size_t u = 1; u < vectors; ++u) lanes = monoid_.Merge(lanes, Slice(states, u), width_);
    const State all = monoid_.MergeLanes(lanes, width_);
    Value const has_tail = e_.ir().CreateICmpNE(e_.ir().CreateURem(InnerSize(), e_.I64(width_)), e_.I64(0));
    return e_.Where(has_tail, all, [&] { return monoid_.Merge(all, tail_of(states), 1); });
  }

  // Takes in elements [begin, end) of the innermost reduced dimension. `first` is the position of element 0.
  // `carried`: the states of vectors, and that of the last elements.
  Values ReduceInner(const Values& bases, Value first, Value begin, Value end, Values carried) {
    const size_t components = monoid_.components();
    // All vectors together, and then the first one alone.
    for (int together = unroll_; width_ > 1 && together > 0; together = together == 1 ? 0 : 1) {
      const int64_t stride = int64_t{width_} * together;
      Value const length = e_.ir().CreateSub(end, begin);
      Value const middle = e_.Add(begin, e_.Mul(e_.ir().CreateUDiv(length, e_.I64(stride)), e_.I64(stride)));
      const auto last = carried.begin() + static_cast<ptrdiff_t>(components) * together;
      const Values after = e_.Loop(
          begin, middle, e_.I64(stride), {carried.begin(), last}, [&](Value j, const Values& current) {
            Values next;
            for (int u = 0; u < together; ++u) {
              Value const at = e_.Add(j, e_.I64(int64_t{u} * width_));
              Append(next,
                     monoid_.Step(Slice(current, static_cast<size_t>(u)), Load(ElementsAt(bases, at), width_),
                                  Position(e_.Add(first, at), width_), width_));
            }
            return next;
          });
      std::copy(after.begin(), after.end(), carried.begin());
      begin = middle;
    }
    const auto tail = carried.end() - static_cast<ptrdiff_t>(components);
    const Values after =
        e_.Loop(begin, end, e_.I64(1), {tail, carried.end()}, [&](Value j, const Values& now) {
          return monoid_.Step(now, Load(ElementsAt(bases, j), 1), e_.Add(first, j), 1);
        });
    std::copy(after.begin(), after.end(), tail);
    return carried;
  }

  // Group x is (outer kept item, slice of columns).
  void EmitColumns() {
    const int inner = key_.kept - 1;
    Value const slices = e_.CeilDiv(KeptSize(inner), args_.column_slice);
    Value const item = e_.ir().CreateUDiv(e_.Group(0), slices);
    Value begin = e_.Mul(e_.ir().CreateURem(e_.Group(0), slices), args_.column_slice);
    Value const end = e_.Min(e_.Add(begin, args_.column_slice), KeptSize(inner));
    const Place place = PlaceOf(item, inner);
    Value const first = e_.Mul(item, KeptSize(inner));
    for (const int64_t blocks : {int64_t{4}, int64_t{1}}) {
      if (width_ == 1) break;
      const int64_t step = blocks * width_;
      Value const whole = e_.ir().CreateUDiv(e_.ir().CreateSub(end, begin), e_.I64(step));
      Value const middle = e_.Add(begin, e_.Mul(whole, e_.I64(step)));
      e_.Loop(begin, middle, e_.I64(step), [&](Value c) { ReduceColumns(place, c, first, blocks, width_); });
      begin = middle;
    }
    e_.Loop(e_.Add(begin, e_.Lane()), end, e_.Lanes(),
            [&](Value c) { ReduceColumns(place, c, first, 1, 1); });
  }

  // Reduces columns c .. c + blocks * width - 1.
  void ReduceColumns(const Place& place, Value column, Value first, int64_t blocks, int width) {
    const Values bases = ColumnsAt(place.inputs, column);
    Values empty;
    for (int64_t b = 0; b < blocks; ++b) Append(empty, monoid_.Init(width));
    const auto run = [&](Value outer, Value from, Value to, const Values& now) {
      const Values row = RowsAt(bases, outer);
      return e_.Loop(from, to, e_.I64(1), now, [&](Value j, const Values& current) {
        const Values at = ElementsAt(row, j);
        Value position = e_.Add(e_.Mul(outer, InnerSize()), j);
        if (width > 1) position = e_.ir().CreateVectorSplat(static_cast<unsigned>(width), position);
        Values next;
        for (int64_t b = 0; b < blocks; ++b) {
          Append(next, monoid_.Step(Slice(current, static_cast<size_t>(b)),
                                    Load(ColumnsAt(at, e_.I64(b * width)), width), position, width));
        }
        return next;
      });
    };
    const Values states = FoldSpace(
        {}, empty, run, [](const Values& all) { return all; }, empty,
        [&](const Values& x, const Values& y) { return MergeAll(x, y, width); });
    for (int64_t b = 0; b < blocks; ++b) {
      Value const at = e_.Add(column, e_.I64(b * width));
      Values here = place.outputs;
      for (Value& offset : here) offset = e_.Add(offset, at);
      StoreResult(Slice(states, static_cast<size_t>(b)), here, e_.Add(first, at), width);
    }
  }

  const int width_, unroll_;
};

}  // namespace

absl::Status EmitHostReduction(const ReduceKey& key, const ReduceArguments<Emitted>& arguments,
                               const ReduceFormula& formula, Emitter& e) {
  return HostReduceEmission(key, arguments, formula, e).Run();
}

}  // namespace xpud::kernels
