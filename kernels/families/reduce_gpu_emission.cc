// Reductions on GPUs: lanes take blocks round robin. Each element of a block has a state; these are merged at
// the end.
#include <algorithm>

#include "kernels/families/reduce_emission.h"

namespace xpud::kernels {
namespace {

class GpuReduceEmission : public ReduceEmission {
 public:
  using ReduceEmission::ReduceEmission;

  absl::Status Run() {
    if (key_.warps) e_.UseWarps();
    if (key_.columns) {
      EmitColumns();
    } else {
      EmitRows([&](Value item, const Place& place) {
        const State state = monoid_.MergeGroup(ReduceRow(place.inputs));
        e_.If(e_.ir().CreateICmpEQ(e_.Lane(), e_.I64(0)),
              [&] { StoreResult(state, place.outputs, item, 1); });
      });
    }
    return monoid_.status();
  }

 private:
  // Loads blocks of the inputs' elements, by element and then by input.
  std::vector<Values> LoadBlocks(const Values& offsets) {
    std::vector<Values> elements(static_cast<size_t>(Block()));
    for (size_t i = 0; i < inputs(); ++i) {
      const Values loaded =
          key_.spread[i]
              ? Values(elements.size(), e_.Load(key_.inputs[i], args_.inputs[i], offsets[i], key_.accumulate))
              : e_.LoadBlock(key_.inputs[i], args_.inputs[i], offsets[i], key_.accumulate,
                             static_cast<int>(Block()));
      for (size_t b = 0; b < elements.size(); ++b) elements[b].push_back(loaded[b]);
    }
    return elements;
  }

  int64_t Block() const { return int64_t{1} << key_.block_log2; }

  struct BlockLoad {  // of a block's first element
    Values offsets;
    Value position;
  };
  // Loads all blocks before the first is used, and steps the states through them. `step` is the distance of
  // positions within a block (columns: 0).
  Values StepBlocks(const std::vector<BlockLoad>& loads, int64_t step, const Values& current) {
    std::vector<std::vector<Values>> blocks;
    for (const BlockLoad& load : loads) blocks.push_back(LoadBlocks(load.offsets));
    Values states = current;
    for (size_t b = 0; b < blocks.size(); ++b) {
      Values next;
      for (size_t i = 0; i < blocks[b].size(); ++i) {
        Value const position = e_.Add(loads[b].position, e_.I64(static_cast<int64_t>(i) * step));
        Append(next, monoid_.Step(Slice(states, i), blocks[b][i], position, 1));
      }
      states = next;
    }
    return states;
  }

  Values InitialBlock() {
    Values states;
    for (int64_t i = 0; i < Block(); ++i) Append(states, monoid_.Init(1));
    return states;
  }

  State ReduceRow(const Values& bases) {
    const int64_t stride = (e_.warps() ? kWarpLanes : kGpuLanes) * Block();
    const auto run = [&](Value outer, Value from, Value to, const Values& now) {
      const Values row = RowsAt(bases, outer);
      Value const first = e_.Mul(outer, InnerSize());
      const auto load = [&](Value j) { return BlockLoad{ElementsAt(row, j), e_.Add(first, j)}; };
      Values after = e_.LoopUnrolled(e_.Add(from, e_.Mul(e_.Lane(), e_.I64(Block()))), to, stride, Block(),
                                     kRowUnroll, now, [&](const Values& indices, const Values& current) {
                                       std::vector<BlockLoad> loads;
                                       for (Value j : indices) loads.push_back(load(j));
                                       return StepBlocks(loads, 1, current);
                                     });
      if (Block() == 1) return after;
      // The elements after the last whole block.
      Value const whole = e_.ir().CreateAnd(e_.ir().CreateSub(to, from), e_.I64(-Block()));
      const Values rest = e_.Loop(e_.Add(e_.Add(from, whole), e_.Lane()), to, e_.Lanes(), Slice(after, 0),
                                  [&](Value j, const Values& current) {
                                    const BlockLoad at = load(j);
                                    return monoid_.Step(current, Load(at.offsets, 1), at.position, 1);
                                  });
      std::copy(rest.begin(), rest.end(), after.begin());
      return after;
    };
    const auto finish = [&](const Values& states) {
      State merged = Slice(states, 0);
      for (int64_t i = 1; i < Block(); ++i)
        merged = monoid_.Merge(merged, Slice(states, static_cast<size_t>(i)), 1);
      return merged;
    };
    return FoldSpace({.inner_stride = stride}, InitialBlock(), run, finish, monoid_.Init(1),
                     [&](const State& x, const State& y) { return monoid_.Merge(x, y, 1); });
  }

  // Group x is (outer kept item, slice of columns). `lanes` neighbouring lanes form a strand; the strands
  // take rows round robin.
  void EmitColumns() {
    const int inner = key_.kept - 1;
    const int64_t lanes = int64_t{1} << key_.column_lanes_log2, strands = int64_t{kGpuLanes} / lanes;
    const int64_t columns = lanes * Block();
    Value const slices = e_.CeilDiv(KeptSize(inner), args_.column_slice);
    Value const item = e_.ir().CreateUDiv(e_.Group(0), slices);
    Value const begin = e_.Mul(e_.ir().CreateURem(e_.Group(0), slices), args_.column_slice);
    const Place place = PlaceOf(item, inner);
    Value const beside = e_.ir().CreateAnd(e_.Lane(), e_.I64(lanes - 1));
    Value const strand = e_.ir().CreateLShr(e_.Lane(), e_.I64(key_.column_lanes_log2));
    // A lane beyond the last column repeats the work of the last ones.
    Value const column = e_.Min(e_.Add(begin, e_.Mul(beside, e_.I64(Block()))),
                                e_.ir().CreateSub(KeptSize(inner), e_.I64(Block())));
    const Values states = ReduceColumns(ColumnsAt(place.inputs, column), strand, strands);
    const State merged = MergeStrands(states, strand, beside, strands, columns);
    Value const own = e_.Add(begin, e_.Lane());
    Value const ours = e_.ir().CreateAnd(e_.ir().CreateICmpSLT(e_.Lane(), e_.I64(columns)),
                                         e_.ir().CreateICmpSLT(own, KeptSize(inner)));
    e_.If(ours, [&] {
      Values here = place.outputs;
      for (Value& offset : here) offset = e_.Add(offset, own);
      StoreResult(merged, here, e_.Add(e_.Mul(item, KeptSize(inner)), own), 1);
    });
  }

  // With one reduced dimension the strands share its rows; with several they share the outer ones.
  Values ReduceColumns(const Values& bases, Value strand, int64_t strands) {
    const bool one = key_.reduced == 1;
    const auto run = [&](Value outer, Value from, Value to, const Values& now) {
      const Values row = RowsAt(bases, outer);
      Value const first = e_.Mul(outer, InnerSize());
      return e_.LoopUnrolled(one ? e_.Add(from, strand) : from, to, one ? strands : 1, 1, kColumnUnroll, now,
                             [&](const Values& indices, const Values& current) {
                               std::vector<BlockLoad> loads;
                               for (Value j : indices)
                                 loads.push_back({ElementsAt(row, j), e_.Add(first, j)});
                               return StepBlocks(loads, 0, current);
                             });
    };
    Walk walk;
    if (one) {
      walk.inner_stride = strands;
    } else {
      walk.outer_first = strand;
      walk.outer_stride = strands;
    }
    return FoldSpace(
        walk, InitialBlock(), run, [](const Values& states) { return states; }, InitialBlock(),
        [&](const Values& x, const Values& y) { return MergeAll(x, y, 1); });
  }

  // Merges all strands' states through shared memory. Lane l gets the state of column l.
  State MergeStrands(const Values& states, Value strand, Value beside, int64_t strands, int64_t columns) {
    const size_t components = monoid_.components();
    Values shared;
    for (size_t c = 0; c < components; ++c)
      shared.push_back(e_.Shared(e_.TypeOf(monoid_.TypeOf(c)), static_cast<uint64_t>(strands * columns)));
    const auto load = [&](Value at) {
      State state;
      for (size_t c = 0; c < components; ++c)
        state.push_back(e_.LoadRaw(e_.TypeOf(monoid_.TypeOf(c)), shared[c], at));
      return state;
    };
    const auto store = [&](Value at, const State& state) {
      for (size_t c = 0; c < components; ++c) e_.StoreRaw(shared[c], at, state[c]);
    };
    Value const mine = e_.Add(e_.Mul(strand, e_.I64(columns)), e_.Mul(beside, e_.I64(Block())));
    for (int64_t i = 0; i < Block(); ++i)
      store(e_.Add(mine, e_.I64(i)), Slice(states, static_cast<size_t>(i)));
    for (int64_t half = strands / 2; half > 0; half /= 2) {
      e_.Barrier();
      const int64_t pairs = half * columns;
      for (int64_t k = 0; k < pairs; k += kGpuLanes) {
        Value const at = e_.Add(e_.Lane(), e_.I64(k));
        e_.If(e_.ir().CreateICmpSLT(at, e_.I64(pairs)),
              [&] { store(at, monoid_.Merge(load(at), load(e_.Add(at, e_.I64(pairs))), 1)); });
      }
    }
    e_.Barrier();
    return load(e_.Min(e_.Lane(), e_.I64(columns - 1)));
  }

  // Blocks in flight at once.
  static constexpr int64_t kRowUnroll = 4, kColumnUnroll = 8;
};

}  // namespace

absl::Status EmitGpuReduction(const ReduceKey& key, const ReduceArguments<Emitted>& arguments,
                              const ReduceFormula& formula, Emitter& e) {
  return GpuReduceEmission(key, arguments, formula, e).Run();
}

}  // namespace xpud::kernels
