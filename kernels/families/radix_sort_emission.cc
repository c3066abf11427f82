
#include "kernels/families/radix_sort.h"

namespace xpud::kernels {

namespace {

constexpr int64_t kDigitBits = RadixKey::kDigitBits, kDigits = RadixKey::kDigits;
constexpr int64_t kLaneCounts = 8;    // that a lane scans at a time
static_assert(kDigits == kGpuLanes);  // a lane takes a digit

using Value = llvm::Value*;
using Values = Emitter::Values;

// Returns how many groups a multiprocessor shall hold. More of them hide latency better, but their items must
// fit in registers.
int RoomFor(const RadixKey& key) {
  const bool has_few = key.items <= 8;
  return key.stage == RadixStage::kLine ? (has_few ? 4 : 2) : (has_few ? 6 : 3);
}

class RadixEmission {
 public:
  RadixEmission(const RadixKey& key, const RadixArguments<Emitted>& arguments, Emitter& emitter)
      : key_(key),
        args_(arguments),
        e_(emitter),
        ir_(emitter.ir()),
        i32_(ir_.getInt32Ty()),
        element_(ir_.getIntNTy(static_cast<unsigned>(ops::SizeOf(key.type)) * 8)) {}

  void Run() {
    if (key_.stage == RadixStage::kScan) return EmitScan();
    if (key_.stage != RadixStage::kCount) e_.MakeRoomFor(RoomFor(key_));
    const Tile tile = OwnTile();
    if (key_.stage == RadixStage::kLine) return EmitLine(tile);
    const auto emit = [&] { key_.stage == RadixStage::kCount ? EmitCount(tile) : EmitPlace(tile); };
    if (key_.first || key_.last || !key_.skips) return emit();
    e_.If(HasWork(tile.line), emit);
  }

 private:
  // ---- numbers of 32 bits: what is within a line

  Value I32(int64_t value) { return ir_.getInt32(static_cast<uint32_t>(value)); }
  Value Narrow(Value value) { return ir_.CreateTrunc(value, i32_); }
  Value Widen(Value value) { return ir_.CreateZExt(value, ir_.getInt64Ty()); }
  Value Thread() { return Narrow(e_.Thread()); }
  Value Warp() { return ir_.CreateLShr(Thread(), I32(5)); }
  Value WarpLane() { return ir_.CreateAnd(Thread(), I32(kWarpLanes - 1)); }
  Value LoadI32(Value base, Value index) { return e_.LoadRaw(i32_, base, index); }

  // ---- passes

  // The bits in which the keys of a line differ. REQUIRES: all lanes of the warp execute it.
  Value VaryingOf(Value line) {
    if (!key_.few) return e_.LoadRaw(ir_.getInt64Ty(), args_.varying, line);
    Value const last = ir_.CreateSub(args_.tiles, e_.I64(1));
    Value const tile = e_.Min(Widen(WarpLane()), last);
    Value bits = e_.LoadRaw(ir_.getInt64Ty(), args_.changes, e_.Add(e_.Mul(line, args_.tiles), tile));
    for (uint32_t mask = kWarpLanes / 2; mask > 0; mask /= 2)
      bits = ir_.CreateOr(bits, e_.ShuffleXor(bits, mask));
    return bits;
  }
  // Returns whether the keys differ in the digit of a pass.
  Value Varies(Value varying, Value pass) {
    Value const digit = ir_.CreateLShr(varying, ir_.CreateShl(pass, e_.I64(3)));
    return ir_.CreateICmpNE(ir_.CreateAnd(digit, e_.I64(kDigits - 1)), e_.I64(0));
  }
  // Returns whether this pass, which is not the first one, has anything to do.
  Value HasWork(Value line) {
    Value const is_last = ir_.CreateICmpEQ(e_.Add(args_.pass, e_.I64(1)), args_.passes);
    return ir_.CreateOr(is_last, Varies(VaryingOf(line), args_.pass));
  }
  // Returns whether this pass reads the second half of the workspace (i1). The first pass writes the first
  // half; each later one that has anything to do reads one and writes the other.
  Value ReadsSecond(Value line) {
    Value second = ir_.getFalse();
    if (!key_.skips) return second;
    Value const varying = VaryingOf(line);
    for (int64_t pass = 1; pass < RadixKey::PassesOf(key_.type) - 1; ++pass) {
      Value const earlier = ir_.CreateICmpSLT(e_.I64(pass), args_.pass);
      second = ir_.CreateXor(second, ir_.CreateAnd(earlier, Varies(varying, e_.I64(pass))));
    }
    return second;
  }
  Value DigitOf(Value key, Value pass) {
    Value const shift = ir_.CreateZExtOrTrunc(ir_.CreateShl(pass, e_.I64(3)), element_);
    Value const digit = RadixKey::PassesOf(key_.type) == 1 ? key : ir_.CreateLShr(key, shift);
    return ir_.CreateAnd(ir_.CreateZExtOrTrunc(digit, i32_), I32(kDigits - 1));
  }

  // ---- tiles

  struct Tile {
    Value line, number;      // of the tile in its line
    Value first;             // position of its first element in the line
    Value count;             // i32: of its elements
    Values offsets;          // of the line in values, indices and self
    Value second = nullptr;  // reads the second half
    Value pass;
  };
  Tile OwnTile() {
    Value const group = Narrow(e_.Group(0)), tiles = Narrow(args_.tiles);
    Tile tile;
    tile.line = Widen(ir_.CreateUDiv(group, tiles));
    tile.number = Widen(ir_.CreateURem(group, tiles));
    tile.first = e_.Mul(tile.number, e_.I64(key_.tile()));
    tile.count = Narrow(e_.Min(ir_.CreateSub(args_.n, tile.first), e_.I64(key_.tile())));
    if (key_.has_elements()) tile.offsets = OffsetsOf(e_, args_.space, tile.line, key_.rank, 3);
    if (!key_.first) tile.second = ReadsSecond(tile.line);
    tile.pass = args_.pass;
    return tile;
  }
  // Item i of a lane, within the tile: a warp has neighbouring items, in the order of i, then of lanes.
  Value PlaceOf(int64_t i) {
    Value const first = ir_.CreateMul(Warp(), I32(key_.items * int64_t{kWarpLanes}));
    return ir_.CreateAdd(ir_.CreateAdd(first, WarpLane()), I32(i * kWarpLanes));
  }
  Value IsInside(const Tile& tile, Value place) { return ir_.CreateICmpULT(place, tile.count); }
  Value PositionAt(const Tile& tile, Value place) { return e_.Add(tile.first, Widen(place)); }

  Value Half(const std::array<Emitted::Pointer, 2>& halves, Value second) {
    return ir_.CreateSelect(second, halves[1], halves[0]);
  }
  // Returns the address of a line's elements in an array of the workspace.
  Value LineIn(llvm::Type* type, Value array, const Tile& tile) {
    return ir_.CreateInBoundsGEP(type, array, e_.Mul(tile.line, args_.n));
  }
  // Loads a lane's items from such an array, also beyond the tile's elements: there is room for a whole tile.
  Values LoadItems(llvm::Type* type, Value array, const Tile& tile) {
    Value const own = ir_.CreateInBoundsGEP(type, LineIn(type, array, tile), PositionAt(tile, PlaceOf(0)));
    Values items;
    for (int64_t i = 0; i < key_.items; ++i) items.push_back(e_.LoadRaw(type, own, e_.I64(i * kWarpLanes)));
    return items;
  }

  Value ElementAt(const Tile& tile, Value position) {
    return e_.LoadRaw(element_, args_.self, e_.Add(tile.offsets[2], e_.Mul(position, args_.self_stride)));
  }
  Value KeyAt(const Tile& tile, Value position) {
    return OrderOf(e_, key_.type, key_.descending, ElementAt(tile, position));
  }
  // The keys of a lane's items. Beyond the tile's elements their digits are the largest ones, so that their
  // places are behind all others.
  Values Keys(const Tile& tile) {
    Values keys;
    if (key_.first) {
      Value const last = ir_.CreateSub(tile.count, I32(1));
      for (int64_t i = 0; i < key_.items; ++i) {
        Value const place = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, PlaceOf(i), last);
        keys.push_back(KeyAt(tile, PositionAt(tile, place)));
      }
    } else {
      keys = LoadItems(element_, Half(args_.keys, tile.second), tile);
    }
    for (int64_t i = 0; i < key_.items; ++i) {
      Value& key = keys[static_cast<size_t>(i)];
      key = ir_.CreateSelect(IsInside(tile, PlaceOf(i)), key, llvm::Constant::getAllOnesValue(element_));
    }
    return keys;
  }
  // The positions (i32) in the line of a lane's items.
  Values Positions(const Tile& tile) {
    if (!key_.first) return LoadItems(i32_, Half(args_.positions, tile.second), tile);
    Value const first = Narrow(PositionAt(tile, PlaceOf(0)));
    Values positions;
    for (int64_t i = 0; i < key_.items; ++i) positions.push_back(ir_.CreateAdd(first, I32(i * kWarpLanes)));
    return positions;
  }

  // ---- equal digits of a warp

  struct Equals {
    Value before, count;  // i32: lanes of the same digit before this one, and all of them
    Value leads;          // i1: none is before
  };
  Equals EqualsOf(Value digit) {
    Value lanes = I32(-1);
    for (int64_t bit = 0; bit < kDigitBits; ++bit) {
      Value const is_set = ir_.CreateICmpNE(ir_.CreateAnd(digit, I32(int64_t{1} << bit)), I32(0));
      Value const unlike = ir_.CreateSelect(is_set, I32(0), I32(-1));
      lanes = ir_.CreateAnd(lanes, ir_.CreateXor(e_.Ballot(is_set), unlike));
    }
    Value const lower = ir_.CreateSub(ir_.CreateShl(I32(1), WarpLane()), I32(1));
    const auto count = [&](Value mask) { return ir_.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, mask); };
    Value const before = count(ir_.CreateAnd(lanes, lower));
    return {before, count(lanes), ir_.CreateICmpEQ(before, I32(0))};
  }

  // ---- count

  Value CountAt(const Tile& tile, Value digit) {
    if (key_.few) {
      Value const row = e_.Add(e_.Mul(tile.line, args_.tiles), tile.number);
      return e_.Add(e_.Mul(row, e_.I64(kDigits)), Widen(digit));
    }
    Value const row = e_.Add(e_.Mul(tile.line, e_.I64(kDigits)), Widen(digit));
    return e_.Add(e_.Mul(row, args_.tiles), tile.number);
  }

  // Lanes add to one of several counts of a digit, so that at most 4 of a warp meet in one, or in one bank.
  void EmitCount(const Tile& tile) {
    constexpr int64_t kParts = 8;
    Value const counts = e_.Shared(i32_, kDigits * kParts);  // [digit, part]
    for (int64_t part = 0; part < kParts; ++part)
      e_.StoreRaw(counts, ir_.CreateAdd(Thread(), I32(part * kDigits)), I32(0));
    const Values keys = Keys(tile);
    e_.Barrier();
    Value const part = ir_.CreateAnd(Thread(), I32(kParts - 1));
    for (Value const key : keys) {
      Value const first = ir_.CreateMul(DigitOf(key, tile.pass), I32(kParts));
      e_.AtomicAdd(ops::DType::kInt32, counts, ir_.CreateOr(first, part), I32(1), Scalar::kI32);
    }
    if (key_.first && key_.skips) StoreChanges(tile, keys);
    e_.Barrier();
    Value count = I32(0);
    for (int64_t of = 0; of < kParts; ++of)
      count =
          ir_.CreateAdd(count, LoadI32(counts, ir_.CreateAdd(ir_.CreateMul(Thread(), I32(kParts)), I32(of))));
    e_.StoreRaw(args_.counts, CountAt(tile, Thread()), count);
  }

  // The bits in which the keys of a tile differ from the line's first one (i64).
  Value ChangesOf(const Tile& tile, const Values& keys) {
    Value const reference = KeyAt(tile, e_.I64(0));
    Value changes = llvm::Constant::getNullValue(element_);
    for (int64_t i = 0; i < key_.items; ++i) {
      Value const change = ir_.CreateXor(keys[static_cast<size_t>(i)], reference);
      changes = ir_.CreateOr(changes, ir_.CreateSelect(IsInside(tile, PlaceOf(i)), change,
                                                       llvm::Constant::getNullValue(element_)));
    }
    return Union(ir_.CreateZExt(changes, ir_.getInt64Ty()));
  }
  void StoreChanges(const Tile& tile, const Values& keys) {
    Value const all = ChangesOf(tile, keys);
    Value const at = e_.Add(e_.Mul(tile.line, args_.tiles), tile.number);
    e_.If(ir_.CreateICmpEQ(Thread(), I32(0)), [&] { e_.StoreRaw(args_.changes, at, all); });
  }
  // The bits that any lane of the team has.
  Value Union(Value bits) {
    return e_.MergeLanes(
        {bits}, [&](const Values& a, const Values& b) -> Values { return {ir_.CreateOr(a[0], b[0])}; })[0];
  }

  // ---- scan: a warp takes the counts of one digit of a line

  void EmitScan() {
    e_.UseWarps();
    Value const row = e_.Team(), line = ir_.CreateUDiv(row, e_.I64(kDigits));
    if (!key_.skips) return ScanRow(row);
    Value const is_first = ir_.CreateICmpEQ(args_.pass, e_.I64(0));
    Value const leads = ir_.CreateICmpEQ(ir_.CreateURem(row, e_.I64(kDigits)), e_.I64(0));
    e_.If(ir_.CreateAnd(is_first, leads), [&] { UniteChanges(line); });
    e_.If(ir_.CreateOr(is_first, HasWork(line)), [&] { ScanRow(row); });
  }

  void UniteChanges(Value line) {
    Value const base = e_.Mul(line, args_.tiles);
    const Values mine = e_.Loop(
        e_.Lane(), args_.tiles, e_.Lanes(), {e_.I64(0)}, [&](Value tile, const Values& so_far) -> Values {
          return {ir_.CreateOr(so_far[0], e_.LoadRaw(ir_.getInt64Ty(), args_.changes, e_.Add(base, tile)))};
        });
    Value const all = Union(mine[0]);
    e_.If(ir_.CreateICmpEQ(e_.Lane(), e_.I64(0)), [&] { e_.StoreRaw(args_.varying, line, all); });
  }

  void ScanRow(Value row) {
    Value const base = e_.Mul(row, args_.tiles), last = ir_.CreateSub(args_.tiles, e_.I64(1));
    const Values total =
        e_.Loop(e_.I64(0), args_.tiles, e_.I64(kWarpLanes * kLaneCounts), {I32(0)},
                [&](Value first, const Values& before) -> Values {
                  Value const own = e_.Add(first, e_.Mul(e_.Lane(), e_.I64(kLaneCounts)));
                  Values counts;
                  for (int64_t i = 0; i < kLaneCounts; ++i) {
                    Value const tile = e_.Add(own, e_.I64(i)), inside = ir_.CreateICmpSLE(tile, last);
                    counts.push_back(ir_.CreateSelect(
                        inside, LoadI32(args_.counts, e_.Add(base, e_.Min(tile, last))), I32(0)));
                  }
                  Value mine = I32(0);
                  for (Value const count : counts) mine = ir_.CreateAdd(mine, count);
                  Value const up_to = UpToLane(mine);
                  Value running = ir_.CreateAdd(before[0], ir_.CreateSub(up_to, mine));
                  for (int64_t i = 0; i < kLaneCounts; ++i) {
                    Value const tile = e_.Add(own, e_.I64(i));
                    e_.If(ir_.CreateICmpSLE(tile, last),
                          [&] { e_.StoreRaw(args_.counts, e_.Add(base, tile), running); });
                    running = ir_.CreateAdd(running, counts[static_cast<size_t>(i)]);
                  }
                  return {ir_.CreateAdd(before[0], e_.ShuffleFrom(up_to, I32(kWarpLanes - 1)))};
                });
    e_.If(ir_.CreateICmpEQ(e_.Lane(), e_.I64(0)), [&] { e_.StoreRaw(args_.totals, row, total[0]); });
  }

  // The sum of `mine` (i32) over the warp's lanes up to this one.
  Value UpToLane(Value mine) {
    Value const lane = WarpLane();
    for (int64_t distance = 1; distance < kWarpLanes; distance *= 2) {
      Value const reaches = ir_.CreateICmpUGE(lane, I32(distance));
      Value const from = ir_.CreateSelect(reaches, ir_.CreateSub(lane, I32(distance)), lane);
      Value const before = e_.ShuffleFrom(mine, from);
      mine = ir_.CreateAdd(mine, ir_.CreateSelect(reaches, before, I32(0)));
    }
    return mine;
  }

  // ---- place

  // Sums of the values (i32) of the group's lanes before this one.
  Values BeforeLane(const Values& mine) {
    Values sums;
    std::vector<Value> shared;
    for (Value const value : mine) {
      Value const up_to = UpToLane(value);
      shared.push_back(e_.Shared(i32_, kGpuWarps));
      e_.If(ir_.CreateICmpEQ(WarpLane(), I32(kWarpLanes - 1)),
            [&] { e_.StoreRaw(shared.back(), Warp(), up_to); });
      sums.push_back(ir_.CreateSub(up_to, value));
    }
    e_.Barrier();
    for (size_t i = 0; i < sums.size(); ++i) {
      for (int64_t warp = 0; warp + 1 < int64_t{kGpuWarps}; ++warp) {
        Value const is_before = ir_.CreateICmpULT(I32(warp), Warp());
        Value const sum = LoadI32(shared[i], I32(warp));
        sums[i] = ir_.CreateAdd(sums[i], ir_.CreateSelect(is_before, sum, I32(0)));
      }
    }
    return sums;
  }

  Value OfWarp(Value warp, Value digit) { return ir_.CreateAdd(ir_.CreateMul(warp, I32(kDigits)), digit); }

  // Where each of a lane's items goes within the tile (i32), by their digits.
  struct Ranking {
    Values places;
    Value shifts;  // shared memory: how far it is from there to the place in the line, by digit
  };
  Ranking Rank(const Tile& tile, const Values& keys) {
    Value const counts = e_.Shared(i32_, kGpuWarps * kDigits);  // [warp, digit]
    for (int64_t warp = 0; warp < int64_t{kGpuWarps}; ++warp)
      e_.StoreRaw(counts, OfWarp(I32(warp), Thread()), I32(0));
    e_.Barrier();
    Ranking ranking = {RanksInWarp(tile, keys, counts), nullptr};
    e_.Barrier();
    ranking.shifts = BeginDigits(tile, counts);
    e_.Barrier();
    for (size_t i = 0; i < keys.size(); ++i) {
      Value const begin = LoadI32(counts, OfWarp(Warp(), DigitOf(keys[i], tile.pass)));
      ranking.places[i] = ir_.CreateAdd(ranking.places[i], begin);
    }
    return ranking;
  }

  // Returns how many keys of the same digit precede each key in its warp, and counts them.
  Values RanksInWarp(const Tile& tile, const Values& keys, Value counts) {
    Values ranks;
    for (Value const key : keys) {
      Value const digit = DigitOf(key, tile.pass), at = OfWarp(Warp(), digit);
      const Equals equals = EqualsOf(digit);
      Value const before = LoadI32(counts, at);
      ranks.push_back(ir_.CreateAdd(before, equals.before));
      e_.WarpBarrier();
      e_.If(equals.leads, [&] { e_.StoreRaw(counts, at, ir_.CreateAdd(before, equals.count)); });
      e_.WarpBarrier();
    }
    return ranks;
  }

  // Turns each warp's counts into the places where its digits begin in the tile. A lane takes a digit.
  // Returns the shifts; none if the tile is the line.
  Value BeginDigits(const Tile& tile, Value counts) {
    const bool is_line = key_.stage == RadixStage::kLine;
    Value const digit = Thread();
    const Values in_line = is_line ? Values{} : CountsInLine(tile, digit);
    Values of_warps;
    Value mine = I32(0);
    for (int64_t warp = 0; warp < int64_t{kGpuWarps}; ++warp) {
      of_warps.push_back(mine);
      mine = ir_.CreateAdd(mine, LoadI32(counts, OfWarp(I32(warp), digit)));
    }
    const Values before = BeforeLane(is_line ? Values{mine} : Values{mine, in_line[1]});
    for (int64_t warp = 0; warp < int64_t{kGpuWarps}; ++warp)
      e_.StoreRaw(counts, OfWarp(I32(warp), digit),
                  ir_.CreateAdd(before[0], of_warps[static_cast<size_t>(warp)]));
    if (is_line) return nullptr;
    Value const shifts = e_.Shared(i32_, kDigits);
    e_.StoreRaw(shifts, digit, ir_.CreateSub(ir_.CreateAdd(before[1], in_line[0]), before[0]));
    return shifts;
  }
  // Returns how many keys of the line have a digit: in earlier tiles, and in all of them.
  Values CountsInLine(const Tile& tile, Value digit) {
    if (!key_.few) {
      Value const row = e_.Add(e_.Mul(tile.line, e_.I64(kDigits)), Widen(digit));
      return {LoadI32(args_.counts, CountAt(tile, digit)), LoadI32(args_.totals, row)};
    }
    Tile other = tile;
    return e_.LoopUnrolled(e_.I64(0), args_.tiles, 1, 1, kLaneCounts, {I32(0), I32(0)},
                           [&](const Values& tiles, const Values& sums) -> Values {
                             Values next = sums;
                             for (Value const number : tiles) {
                               other.number = number;
                               Value const count = LoadI32(args_.counts, CountAt(other, digit));
                               Value const is_earlier = ir_.CreateICmpSLT(number, tile.number);
                               next[0] = ir_.CreateAdd(next[0], ir_.CreateSelect(is_earlier, count, I32(0)));
                               next[1] = ir_.CreateAdd(next[1], count);
                             }
                             return next;
                           });
  }

  // Shared memory for one number of each of a tile's items.
  Value Exchange(llvm::IntegerType* type) { return e_.Shared(type, static_cast<uint64_t>(key_.tile())); }

  void EmitPlace(const Tile& tile) {
    const Values keys = Keys(tile);
    Move(tile, keys, Rank(tile, keys));
  }

  // Puts keys and positions in order in shared memory, then writes them.
  void Move(const Tile& tile, const Values& keys, const Ranking& ranking) {
    Value const sorted_keys = Exchange(element_), sorted_positions = Exchange(i32_);
    const Values positions = Positions(tile);
    for (size_t i = 0; i < keys.size(); ++i) {
      e_.StoreRaw(sorted_keys, ranking.places[i], keys[i]);
      e_.StoreRaw(sorted_positions, ranking.places[i], positions[i]);
    }
    e_.Barrier();
    Value const to_keys = key_.last ? nullptr : LineIn(element_, Half(args_.keys, NextHalf(tile)), tile);
    Value const to_positions =
        key_.last ? nullptr : LineIn(i32_, Half(args_.positions, NextHalf(tile)), tile);
    for (size_t i = 0; i < keys.size(); ++i) {
      Value const place = ir_.CreateAdd(Thread(), I32(static_cast<int64_t>(i * kGpuLanes)));
      Value const key = e_.LoadRaw(element_, sorted_keys, place), position = LoadI32(sorted_positions, place);
      Value const shift = LoadI32(ranking.shifts, DigitOf(key, tile.pass));
      Value const target = Widen(ir_.CreateAdd(place, shift));
      e_.If(IsInside(tile, place), [&] {
        if (key_.last) return StoreResult(tile, target, key, Widen(position));
        e_.StoreRaw(to_keys, target, key);
        e_.StoreRaw(to_positions, target, position);
      });
    }
  }
  Value NextHalf(const Tile& tile) { return key_.first ? ir_.getFalse() : ir_.CreateNot(tile.second); }

  // ---- lines of one tile

  void EmitLine(Tile tile) {
    const size_t items = static_cast<size_t>(key_.items);
    Values state = Keys(tile);
    Value const varying = RadixKey::PassesOf(key_.type) > 1 ? ChangesOf(tile, state) : e_.I64(-1);
    for (Value const position : Positions(tile)) state.push_back(position);
    Value const shared = Exchange(element_->getIntegerBitWidth() > 32 ? element_ : i32_);
    // Puts one array of the state in order.
    const auto reorder = [&](llvm::Type* type, Values& now, size_t first, const Values& places) {
      for (size_t i = 0; i < items; ++i) e_.StoreRaw(shared, places[i], now[first + i]);
      e_.Barrier();
      for (size_t i = 0; i < items; ++i)
        now[first + i] = e_.LoadRaw(type, shared, PlaceOf(static_cast<int64_t>(i)));
      e_.Barrier();
    };
    const auto pass = [&](Value number, const Values& before) {
      Values now = before;
      tile.pass = number;
      const Ranking ranking = Rank(tile, {now.begin(), now.begin() + static_cast<ptrdiff_t>(items)});
      reorder(element_, now, 0, ranking.places);
      reorder(i32_, now, items, ranking.places);
      return now;
    };
    state = e_.Loop(e_.I64(0), e_.I64(RadixKey::PassesOf(key_.type)), e_.I64(1), state,
                    [&](Value number, const Values& before) {
                      Value const once = ir_.CreateZExt(Varies(varying, number), ir_.getInt64Ty());
                      return e_.Loop(e_.I64(0), once, e_.I64(1), before,
                                     [&](Value, const Values& now) { return pass(number, now); });
                    });
    for (size_t i = 0; i < items; ++i) {
      Value const place = PlaceOf(static_cast<int64_t>(i));
      e_.If(IsInside(tile, place),
            [&] { StoreResult(tile, Widen(place), state[i], Widen(state[items + i])); });
    }
  }

  // Writes element `at` of the line's result.
  void StoreResult(const Tile& tile, Value at, Value key, Value position) {
    const Unordered element = FromOrder(e_, key_.type, key_.descending, key);
    e_.If(ir_.CreateICmpSLT(at, args_.k), [&] {
      Value bits = element.bits;
      if (ops::IsFloating(key_.type)) {
        // All lanes with exact bits load the line's first element, so that this costs little.
        Value const original = ElementAt(tile, ir_.CreateSelect(element.exact, e_.I64(0), position));
        bits = ir_.CreateSelect(element.exact, bits, original);
      }
      e_.StoreRaw(args_.values, e_.Add(tile.offsets[0], e_.Mul(at, args_.values_stride)), bits);
      e_.StoreRaw(args_.indices, e_.Add(tile.offsets[1], e_.Mul(at, args_.indices_stride)), position);
    });
  }

  const RadixKey& key_;
  const RadixArguments<Emitted>& args_;
  Emitter& e_;
  llvm::IRBuilder<>& ir_;
  llvm::IntegerType* const i32_;
  llvm::IntegerType* const element_;
};

}  // namespace

std::string RadixSkeleton::Name(const RadixKey& key) const {
  static constexpr std::string_view kNames[] = {"radix_count", "radix_scan", "radix_place", "radix_line"};
  return std::string(kNames[static_cast<size_t>(key.stage)]);
}

absl::Status RadixSkeleton::EmitBody(const RadixKey& key, const RadixArguments<Emitted>& arguments,
                                     Emitter& e) const {
  RadixEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

}  // namespace xpud::kernels
