#include <algorithm>
#include <utility>

#include "kernels/families/sort.h"

namespace xpud::kernels {

namespace {

constexpr int64_t kBlock = 8;  // items that the host sorts by a network
constexpr int kVector = 32;    // elements that are compared at once
static_assert(SortTile::kSpare % kVector == 0);

using Value = llvm::Value*;
using Values = Emitter::Values;
using Item = Values;  // one or two words

class SortEmission {
 public:
  SortEmission(const SortKey& key, const SortArguments<Emitted>& arguments, Emitter& emitter)
      : key_(key), args_(arguments), e_(emitter), word_(e_.ir().getInt64Ty()), words_(key.wide ? 2 : 1) {}

  void Run() {
    if (e_.gpu()) {
      key_.merges ? EmitLane() : EmitGroup();
      return;
    }
    Value const count = key_.merges ? e_.Mul(e_.Mul(args_.lines, args_.after.count), Chunks())
                                    : e_.Mul(args_.lines, args_.after.count);
    Value const begin = e_.Mul(e_.Group(0), args_.slice);
    e_.Loop(begin, e_.Min(e_.Add(begin, args_.slice), count), e_.I64(1),
            [&](Value item) { key_.merges ? EmitChunk(item) : EmitTile(item); });
  }

 private:
  // ---- items

  Value ToI64(Value condition) { return e_.ir().CreateZExt(condition, word_); }
  Value Sub(Value a, Value b) { return e_.ir().CreateNSWSub(a, b); }
  Value Less(const Item& a, const Item& b) {
    Value const first = e_.ir().CreateICmpULT(a[0], b[0]);
    if (!key_.wide) return first;
    Value const equal = e_.ir().CreateICmpEQ(a[0], b[0]);
    return e_.ir().CreateOr(first, e_.ir().CreateAnd(equal, e_.ir().CreateICmpULT(a[1], b[1])));
  }
  Item Select(Value condition, const Item& yes, const Item& no) {
    Item chosen;
    for (size_t w = 0; w < words_; ++w) chosen.push_back(e_.ir().CreateSelect(condition, yes[w], no[w]));
    return chosen;
  }
  // After all items.
  Item Pad() { return Item(words_, e_.I64(-1)); }
  Value PositionOf(const Item& item) {
    return key_.wide ? item[1] : e_.ir().CreateAnd(item[0], e_.I64(0xffffffff));
  }
  Value WordAt(Value at, size_t w) {
    return e_.Add(e_.Mul(at, e_.I64(static_cast<int64_t>(words_))), e_.I64(static_cast<int64_t>(w)));
  }
  Item LoadItem(Value items, Value at) {
    Item item;
    for (size_t w = 0; w < words_; ++w) item.push_back(e_.LoadRaw(word_, items, WordAt(at, w)));
    return item;
  }
  void StoreItem(Value items, Value at, const Item& item) {
    for (size_t w = 0; w < words_; ++w) e_.StoreRaw(items, WordAt(at, w), item[w]);
  }

  // ---- lines

  llvm::Type* ElementType() { return e_.ir().getIntNTy(static_cast<unsigned>(ops::SizeOf(key_.type) * 8)); }
  Value ElementAt(const Values& line, Value position) {
    return e_.LoadRaw(ElementType(), args_.self, e_.Add(line[2], e_.Mul(position, args_.self_stride)));
  }
  // Returns the offsets of a line in values, indices and self.
  Values LineAt(Value line) { return OffsetsOf(e_, args_.space, line, key_.rank, 3); }
  // Returns the item of the element at `position`.
  Item ItemAt(const Values& line, Value position) {
    Value const key =
        e_.ir().CreateZExt(OrderOf(e_, key_.type, key_.descending, ElementAt(line, position)), word_);
    if (key_.wide) return {key, position};
    return {e_.ir().CreateOr(e_.ir().CreateShl(key, 32), position)};
  }
  // As above; a pad at and beyond `end`.
  Item ItemBefore(const Values& line, Value position, Value end) {
    Value const inside = e_.ir().CreateICmpSLT(position, end);
    Value const at = e_.ir().CreateSelect(inside, position, Sub(end, e_.I64(1)));
    return Select(inside, ItemAt(line, at), Pad());
  }
  // Writes item `at` of a line's result.
  void StoreResult(const Values& line, Value at, const Item& item) {
    Value const position = PositionOf(item);
    e_.Store(ops::DType::kInt64, args_.indices, e_.Add(line[1], e_.Mul(at, args_.indices_stride)), position,
             Scalar::kI64);
    e_.StoreRaw(args_.values, e_.Add(line[0], e_.Mul(at, args_.values_stride)), ElementAt(line, position));
  }
  // Where the items of run `run` of line number `number` begin, after this kernel.
  Value AfterAt(Value number, Value run) {
    return e_.Add(e_.Mul(number, args_.after.pitch), e_.Mul(run, args_.after.length));
  }

  // ---- merging

  // A sorted sequence in memory: items first .. first + length - 1.
  struct Sequence {
    Value first, length;
  };
  // Returns item `at` of a sequence; a pad beyond its end. An empty one must have a valid `first`.
  Item ItemOf(Value items, const Sequence& sequence, Value at) {
    Value const inside = e_.ir().CreateICmpSLT(at, sequence.length);
    Value const safe = e_.ir().CreateSelect(inside, at, e_.I64(0));
    return Select(inside, LoadItem(items, e_.Add(sequence.first, safe)), Pad());
  }
  // Merges `count` items, from item i of `a` and item j of `b`. Calls store(t, item) for t = 0 .. count - 1.
  template <typename Store>
  void Merge(Value items, const Sequence& a, const Sequence& b, Value i, Value j, Value count, Store store) {
    Values carried = {i, j};
    for (const Item& item : {ItemOf(items, a, i), ItemOf(items, b, j)})
      carried.insert(carried.end(), item.begin(), item.end());
    e_.Loop(e_.I64(0), count, e_.I64(1), carried, [&](Value t, const Values& now) {
      const auto middle = now.begin() + 2 + static_cast<ptrdiff_t>(words_);
      const Item next_a(now.begin() + 2, middle), next_b(middle, now.end());
      Value const takes_a = Less(next_a, next_b);
      store(t, Select(takes_a, next_a, next_b));
      Value const from_a = ToI64(takes_a);
      Value const at_a = e_.Add(now[0], from_a), at_b = e_.Add(now[1], Sub(e_.I64(1), from_a));
      const auto choose = [&](Value x, Value y) { return e_.ir().CreateSelect(takes_a, x, y); };
      const Item loaded =
          ItemOf(items, {choose(a.first, b.first), choose(a.length, b.length)}, choose(at_a, at_b));
      Values next = {at_a, at_b};
      for (const Item& item : {Select(takes_a, loaded, next_a), Select(takes_a, next_b, loaded)})
        next.insert(next.end(), item.begin(), item.end());
      return next;
    });
  }
  // Returns how many of the first `count` items of the merged sequences are of `a`.
  Value PathAt(Value items, const Sequence& a, const Sequence& b, Value count) {
    Value const beyond = Sub(count, b.length);
    Value const least = e_.ir().CreateSelect(e_.ir().CreateICmpSLT(beyond, e_.I64(0)), e_.I64(0), beyond);
    const Values found = e_.While(
        {least, e_.Min(count, a.length)},
        [&](const Values& range) { return e_.ir().CreateICmpSLT(range[0], range[1]); },
        [&](const Values& range) -> Values {
          Value const middle = e_.ir().CreateLShr(e_.Add(range[0], range[1]), e_.I64(1));
          Value const other = Sub(Sub(count, middle), e_.I64(1));
          Value const less =
              Less(LoadItem(items, e_.Add(a.first, middle)), LoadItem(items, e_.Add(b.first, other)));
          return {e_.ir().CreateSelect(less, e_.Add(middle, e_.I64(1)), range[0]),
                  e_.ir().CreateSelect(less, range[1], middle)};
        });
    return found[0];
  }

  // ---- merges of runs

  Value Chunks() { return e_.CeilDiv(args_.after.length, args_.chunk); }

  // Returns the length of run `run`: the first items of the elements that it covers.
  Value LengthOf(const RunArguments<Emitted>& runs, Value run) {
    Value const rest = Sub(args_.n, e_.Mul(run, runs.covers));
    Value const least = e_.ir().CreateSelect(e_.ir().CreateICmpSLT(rest, e_.I64(0)), e_.I64(0), rest);
    return e_.Min(least, runs.length);
  }

  void EmitChunk(Value number) {
    llvm::IRBuilder<>& ir = e_.ir();
    Value const chunks = Chunks(), chunk = ir.CreateURem(number, chunks);
    Value const all_runs = ir.CreateUDiv(number, chunks);
    Value const run = ir.CreateURem(all_runs, args_.after.count);
    Value const line = ir.CreateUDiv(all_runs, args_.after.count);
    Value const begin = e_.Mul(chunk, args_.chunk);
    Value const end = e_.Min(e_.Add(begin, args_.chunk), LengthOf(args_.after, run));
    Value const left = e_.Mul(run, e_.I64(2)), right = e_.Add(left, e_.I64(1));
    Value const base = e_.Mul(line, args_.before.pitch);
    const auto first = [&](Value of) { return e_.Add(base, e_.Mul(of, args_.before.length)); };
    const Sequence a = {first(left), LengthOf(args_.before, left)};
    Value const more = LengthOf(args_.before, right);
    const Sequence b = {ir.CreateSelect(ir.CreateICmpSGT(more, e_.I64(0)), first(right), a.first), more};
    e_.If(ir.CreateICmpSLT(begin, end), [&] {
      Value const i = PathAt(args_.from, a, b, begin);
      const Values offsets = key_.last ? LineAt(line) : Values{};
      Value const target = e_.Add(AfterAt(line, run), begin);
      Merge(args_.from, a, b, i, Sub(begin, i), Sub(end, begin), [&](Value t, const Item& item) {
        if (key_.last)
          StoreResult(offsets, e_.Add(begin, t), item);
        else
          StoreItem(args_.to, e_.Add(target, t), item);
      });
    });
  }

  void EmitLane() {
    Value const item = e_.Add(e_.Mul(e_.Group(0), e_.Lanes()), e_.Lane());
    Value const count = e_.Mul(e_.Mul(args_.lines, args_.after.count), Chunks());
    e_.If(e_.ir().CreateICmpSLT(item, count), [&] { EmitChunk(item); });
  }

  // ---- tiles on the host

  // The elements begin .. end - 1 of a line.
  struct Tile {
    Value line, run, begin, end;
    Values offsets;
  };
  Tile TileAt(Value number) {
    Tile tile;
    tile.line = e_.ir().CreateUDiv(number, args_.after.count);
    tile.run = e_.ir().CreateURem(number, args_.after.count);
    tile.begin = e_.Mul(tile.run, args_.after.covers);
    tile.end = e_.Min(e_.Add(tile.begin, args_.after.covers), args_.n);
    tile.offsets = LineAt(tile.line);
    return tile;
  }
  // Two arrays of items in scratch.
  static constexpr int64_t kHostItems =
      std::max(SortTile::kHost, 2 * SortTile::kMaxSelected + 2 * SortTile::kSpare) + kBlock;
  Values ScratchArrays() {
    Value const second = e_.ir().CreateInBoundsGEP(word_, e_.Scratch(), WordAt(e_.I64(kHostItems), 0));
    return {e_.Scratch(), second};
  }

  void EmitTile(Value number) {
    const Tile tile = TileAt(number);
    Value sorted = nullptr;
    if (key_.select) {
      sorted = SelectFirst(tile);
    } else {
      const Values arrays = ScratchArrays();
      sorted = SortItems(arrays, Sub(tile.end, tile.begin), [&](Value at) {
        return ItemBefore(tile.offsets, e_.Add(tile.begin, at), tile.end);
      })[0];
    }
    Value const kept = LengthOf(args_.after, tile.run), target = AfterAt(tile.line, tile.run);
    e_.Loop(e_.I64(0), kept, e_.I64(1), [&](Value at) {
      const Item item = LoadItem(sorted, at);
      if (key_.last)
        StoreResult(tile.offsets, at, item);
      else
        StoreItem(args_.to, e_.Add(target, at), item);
    });
  }

  // Sorts `count` items. load(at) returns item `at`, or a pad beyond the last one. Returns the two arrays;
  // the first one has the sorted items.
  template <typename Load>
  Values SortItems(const Values& arrays, Value count, Load load) {
    Value const padded = e_.Mul(e_.CeilDiv(count, e_.I64(kBlock)), e_.I64(kBlock));
    e_.Loop(e_.I64(0), padded, e_.I64(kBlock), [&](Value first) {
      std::vector<Item> items;
      for (int64_t i = 0; i < kBlock; ++i) items.push_back(load(e_.Add(first, e_.I64(i))));
      SortBlock(items);
      for (int64_t i = 0; i < kBlock; ++i)
        StoreItem(arrays[0], e_.Add(first, e_.I64(i)), items[static_cast<size_t>(i)]);
    });
    const Values sorted = e_.While(
        {arrays[0], arrays[1], e_.I64(kBlock)},
        [&](const Values& now) { return e_.ir().CreateICmpSLT(now[2], padded); },
        [&](const Values& now) -> Values {
          MergePairs(now[0], now[1], now[2], padded);
          return {now[1], now[0], e_.Mul(now[2], e_.I64(2))};
        });
    return {sorted[0], sorted[1]};
  }

  // Batcher's odd-even merge sort (1968).
  void SortBlock(std::vector<Item>& items) {
    constexpr std::pair<size_t, size_t> kPairs[] = {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {0, 2}, {1, 3}, {4, 6},
                                                    {5, 7}, {1, 2}, {5, 6}, {0, 4}, {1, 5}, {2, 6}, {3, 7},
                                                    {2, 4}, {3, 5}, {1, 2}, {3, 4}, {5, 6}};
    for (const auto& [low, high] : kPairs) {
      const Item a = items[low], b = items[high];
      Value const swaps = Less(b, a);
      items[low] = Select(swaps, b, a);
      items[high] = Select(swaps, a, b);
    }
  }

  // Merges neighbouring sequences of `width` items.
  void MergePairs(Value from, Value to, Value width, Value count) {
    e_.Loop(e_.I64(0), count, e_.Mul(width, e_.I64(2)), [&](Value start) {
      Value const rest = Sub(count, start), first = e_.Min(width, rest);
      Value const second = e_.Min(width, Sub(rest, first));
      Value const nonempty = e_.ir().CreateICmpSGT(second, e_.I64(0));
      const Sequence a = {start, first};
      const Sequence b = {e_.ir().CreateSelect(nonempty, e_.Add(start, first), start), second};
      Merge(from, a, b, e_.I64(0), e_.I64(0), e_.Add(first, second),
            [&](Value t, const Item& item) { StoreItem(to, e_.Add(start, t), item); });
    });
  }

  // ---- the first k items of a tile, for small k

  Values SortKept(const Values& arrays, Value count) {
    return SortItems(arrays, count, [&](Value at) {
      Value const inside = e_.ir().CreateICmpSLT(at, count);
      return Select(inside, LoadItem(arrays[0], e_.ir().CreateSelect(inside, at, e_.I64(0))), Pad());
    });
  }

  // Returns an array that begins with the first k items of the tile, sorted.
  Value SelectFirst(const Tile& tile) {
    const Values arrays = ScratchArrays();
    Values carried = {arrays[0], arrays[1], e_.I64(0)};
    for (Value word : Pad()) carried.push_back(word);
    // At most k + (k + spare) + a step's items are kept.
    Value const crowd = e_.Add(e_.Mul(args_.k, e_.I64(2)), e_.I64(SortTile::kSpare));
    carried =
        e_.Loop(tile.begin, tile.end, e_.I64(SortTile::kSpare), carried, [&](Value first, const Values& now) {
          const Values kept = Keep(tile, first, now);
          Value const crowded = ToI64(e_.ir().CreateICmpSGT(kept[2], crowd));
          return e_.Loop(e_.I64(0), crowded, e_.I64(1), kept,
                         [&](Value, const Values& all) { return Shrink(all); });
        });
    return SortKept({carried[0], carried[1]}, carried[2])[0];
  }
  // Adds items of a step that precede the k-th one so far. State: two arrays, the number of items, the k-th
  // one.
  Values Keep(const Tile& tile, Value first, const Values& now) {
    const Item limit(now.begin() + 3, now.end());
    Value const end = e_.Min(e_.Add(first, e_.I64(SortTile::kSpare)), tile.end);
    const auto keep = [&](Value begin, Value beyond, const Values& count) {
      return e_.Loop(begin, beyond, e_.I64(1), count, [&](Value at, const Values& so_far) -> Values {
        const Item item = ItemAt(tile.offsets, at);
        StoreItem(now[0], so_far[0], item);
        return {e_.Add(so_far[0], ToI64(Less(item, limit)))};
      });
    };
    Values count = {now[2]};
    if (key_.dense) {
      Value const rest = e_.ir().CreateURem(Sub(end, first), e_.I64(kVector)), beyond = Sub(end, rest);
      count = e_.Loop(first, beyond, e_.I64(kVector), count, [&](Value at, const Values& so_far) {
        return KeepChosen(tile, at, Preceding(tile, at, limit), now[0], so_far[0]);
      });
      first = beyond;
    }
    Values kept = now;
    kept[2] = keep(first, end, count)[0];
    return kept;
  }
  // Returns which of kVector elements precede the limit, as a mask. They are behind it in the line, so that
  // one of an equal key does not.
  Value Preceding(const Tile& tile, Value at, const Item& limit) {
    llvm::IRBuilder<>& ir = e_.ir();
    auto* const vector = llvm::FixedVectorType::get(ElementType(), kVector);
    Value const keys =
        OrderOf(e_, key_.type, key_.descending, e_.LoadRaw(vector, args_.self, e_.Add(tile.offsets[2], at)));
    Value const limit_key = ir.CreateTrunc(key_.wide ? limit[0] : ir.CreateLShr(limit[0], 32), ElementType());
    Value const precede = ir.CreateICmpULT(keys, ir.CreateVectorSplat(kVector, limit_key));
    Value const is_pad = ir.CreateICmpEQ(limit.back(), Pad().back());
    Value const mask = ir.CreateBitCast(precede, ir.getIntNTy(kVector));
    return ir.CreateSelect(is_pad, llvm::ConstantInt::getAllOnesValue(mask->getType()), mask);
  }
  // Adds the items from `at` that a mask chooses. Returns the number of items then.
  Values KeepChosen(const Tile& tile, Value at, Value mask, Value items, Value count) {
    llvm::IRBuilder<>& ir = e_.ir();
    Value const zero = llvm::ConstantInt::get(mask->getType(), 0);
    const Values after = e_.While(
        {mask, count}, [&](const Values& now) { return ir.CreateICmpNE(now[0], zero); },
        [&](const Values& now) -> Values {
          Value const next = ir.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, now[0], ir.getTrue());
          StoreItem(items, now[1], ItemAt(tile.offsets, e_.Add(at, ir.CreateZExt(next, word_))));
          Value const rest = ir.CreateSub(now[0], llvm::ConstantInt::get(mask->getType(), 1));
          return {ir.CreateAnd(now[0], rest), e_.Add(now[1], e_.I64(1))};
        });
    return {after[1]};
  }
  Values Shrink(const Values& all) {
    const Values sorted = SortKept({all[0], all[1]}, all[2]);
    Values state = {sorted[0], sorted[1], args_.k};
    for (Value word : LoadItem(sorted[0], Sub(args_.k, e_.I64(1)))) state.push_back(word);
    return state;
  }

  // ---- tiles on a GPU: a bitonic sort whose every comparison puts the smaller item first

  // Slot `slot` of a group: one of 1 << run_log2 slots of a line's tile.
  struct Slot {
    Value valid, line, run, position, at;  // at: within the tile
  };
  Slot SlotAt(Value slot) {
    llvm::IRBuilder<>& ir = e_.ir();
    const int64_t run = int64_t{1} << key_.run_log2;
    Value const tiles = e_.Mul(e_.Group(0), e_.I64(SortTile::kGpu / run));
    Value const number = e_.Add(tiles, ir.CreateLShr(slot, e_.I64(key_.run_log2)));
    Slot at;
    at.at = ir.CreateAnd(slot, e_.I64(run - 1));
    at.line = ir.CreateUDiv(number, args_.after.count);
    at.run = ir.CreateURem(number, args_.after.count);
    at.position = e_.Add(e_.Mul(at.run, args_.after.covers), at.at);
    at.valid = ir.CreateAnd(ir.CreateICmpSLT(at.line, args_.lines), ir.CreateICmpSLT(at.position, args_.n));
    return at;
  }

  void EmitGroup() {
    Value const shared = e_.Shared(word_, static_cast<uint64_t>(SortTile::kGpu) * words_);
    const auto slots = [&](const auto& body) {
      e_.Loop(e_.Lane(), e_.I64(SortTile::kGpu), e_.I64(kGpuLanes), [&](Value slot) { body(slot); });
    };
    slots([&](Value slot) {
      const Slot at = SlotAt(slot);
      StoreItem(shared, slot, Pad());
      e_.If(at.valid, [&] { StoreItem(shared, slot, ItemAt(LineAt(at.line), at.position)); });
    });
    e_.Barrier();
    e_.Loop(e_.I64(1), e_.I64(key_.run_log2 + 1), e_.I64(1), [&](Value level) {
      e_.Loop(e_.I64(0), level, e_.I64(1), [&](Value step) {
        e_.Loop(e_.Lane(), e_.I64(SortTile::kGpu / 2), e_.I64(kGpuLanes),
                [&](Value pair) { CompareSlots(shared, pair, level, step); });
        e_.Barrier();
      });
    });
    slots([&](Value slot) {
      const Slot at = SlotAt(slot);
      Value const kept = e_.ir().CreateICmpSLT(at.at, LengthOf(args_.after, at.run));
      e_.If(e_.ir().CreateAnd(at.valid, kept), [&] {
        const Item item = LoadItem(shared, slot);
        if (key_.last)
          StoreResult(LineAt(at.line), at.at, item);
        else
          StoreItem(args_.to, e_.Add(AfterAt(at.line, at.run), at.at), item);
      });
    });
  }

  // Compares one pair of slots. The first step of a level compares item i of a block of 1 << level with item
  // i from its end; later ones compare slots that are a distance apart.
  void CompareSlots(Value shared, Value pair, Value level, Value step) {
    llvm::IRBuilder<>& ir = e_.ir();
    Value const shift = Sub(Sub(level, step), e_.I64(1));
    Value const distance = ir.CreateShl(e_.I64(1), shift);
    Value const block = ir.CreateShl(ir.CreateLShr(pair, shift), e_.Add(shift, e_.I64(1)));
    Value const offset = ir.CreateAnd(pair, Sub(distance, e_.I64(1)));
    Value const low = e_.Add(block, offset);
    Value const last = Sub(e_.Add(block, e_.Mul(distance, e_.I64(2))), e_.I64(1));
    Value const high =
        ir.CreateSelect(ir.CreateICmpEQ(step, e_.I64(0)), Sub(last, offset), e_.Add(low, distance));
    const Item a = LoadItem(shared, low), b = LoadItem(shared, high);
    e_.If(Less(b, a), [&] {
      StoreItem(shared, low, b);
      StoreItem(shared, high, a);
    });
  }

  const SortKey& key_;
  const SortArguments<Emitted>& args_;
  Emitter& e_;
  llvm::IntegerType* const word_;
  const size_t words_;
};

}  // namespace

absl::Status SortSkeleton::EmitBody(const SortKey& key, const SortArguments<Emitted>& arguments,
                                    Emitter& e) const {
  SortEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

}  // namespace xpud::kernels
