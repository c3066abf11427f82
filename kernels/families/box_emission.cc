#include "kernels/families/box_emission.h"

#include <algorithm>

#include "kernels/families/slices.h"
#include "proto/base/check.h"

namespace xpud::kernels {

void BoxEmission::EmitLoops() {
  if (e_.gpu() && space_.tiled) {
    EmitTile();
  } else if (e_.gpu()) {
    EmitThread();
  } else if (space_.rank == 1) {
    EmitLine();
  } else {
    EmitBox();
  }
}

BoxEmission::Value BoxEmission::Stride(int operand, int dim) {
  if (dim == space_.rank - 1 && AccessOf(operand) != Access::kStrided) {
    return e_.I64(AccessOf(operand) == Access::kContiguous ? 1 : 0);
  }
  return box_.strides[static_cast<size_t>(operand)][static_cast<size_t>(dim)];
}

BoxEmission::Values BoxEmission::OffsetsAt(const Values& base, Value j) {
  Values offsets;
  for (int o = 0; o < operands(); ++o) {
    if (!InMemory(o)) {
      offsets.push_back(nullptr);
      continue;
    }
    Value const start = base.empty() ? e_.I64(0) : base[static_cast<size_t>(o)];
    const bool fixed = AccessOf(o) == Access::kBroadcast;
    offsets.push_back(fixed ? start : e_.Add(start, e_.Mul(j, Stride(o, space_.rank - 1))));
  }
  return offsets;
}

void BoxEmission::EmitInner(const Values& base, Value first, Value begin, Value end) {
  bool reports = false;
  const Values reported = e_.Loop(
      begin, end, e_.I64(1), {e_.I64(0)},
      [&](Value j, const Values& worst) -> Values {
        Value const report = EmitElement(OffsetsAt(base, j), first == nullptr ? j : e_.Add(first, j));
        if (report == nullptr) return worst;
        reports = true;
        return {e_.ir().CreateBinaryIntrinsic(llvm::Intrinsic::umax, worst[0], report)};
      },
      Emitter::LoopKind::kParallel);
  if (reports) EmitReport(reported[0]);
}

void BoxEmission::EmitLine() {
  Value const begin = e_.Mul(e_.Group(0), box_.inner_slice);
  EmitInner({}, nullptr, begin, End(begin, box_.inner_slice, Size(0)));
}

void BoxEmission::EmitBox() {
  const int rank = space_.rank;
  Value planes = e_.I64(1);
  for (int d = 0; d < rank - 2; ++d) planes = e_.Mul(planes, Size(d));
  Value const plane_begin = e_.Mul(e_.Group(2), box_.plane_slice);
  Value const row_begin = e_.Mul(e_.Group(1), box_.row_slice);
  Value const row_end = End(row_begin, box_.row_slice, Size(rank - 2));
  Value const begin = e_.Mul(e_.Group(0), box_.inner_slice);
  Value const end = End(begin, box_.inner_slice, Size(rank - 1));
  e_.Loop(plane_begin, End(plane_begin, box_.plane_slice, planes), e_.I64(1), [&](Value plane) {
    const Values base = BaseOf(plane);
    const auto rows = [&](Value from, Value to) {
      e_.Loop(row_begin, row_end, e_.I64(1), [&](Value row) {
        Values row_base = base;
        Step(row_base, rank - 2, row);
        Value const first = e_.Mul(e_.Add(e_.Mul(plane, Size(rank - 2)), row), Size(rank - 1));
        EmitInner(row_base, first, from, to);
      });
    };
    if (!space_.tiled) return rows(begin, end);
    // Columns in tiles: all rows use a line of a transposed operand before it leaves the cache. More than 16
    // lines at a power-of-two distance would evict each other.
    e_.Loop(begin, end, e_.I64(16), [&](Value from) { rows(from, e_.Min(e_.Add(from, e_.I64(16)), end)); });
  });
}

// Returns the operands' offsets at linear index `outer` of dimensions 0 .. rank - 3.
BoxEmission::Values BoxEmission::BaseOf(Value outer) {
  Values base(static_cast<size_t>(operands()), e_.I64(0));
  for (int d = space_.rank - 3; d >= 0; --d) {
    Value const at = d == 0 ? outer : e_.ir().CreateURem(outer, Size(d));
    if (d > 0) outer = e_.ir().CreateUDiv(outer, Size(d));
    Step(base, d, at);
  }
  return base;
}

void BoxEmission::Step(Values& base, int dim, Value at) {
  for (int o = 0; o < operands(); ++o) {
    if (InMemory(o))
      base[static_cast<size_t>(o)] = e_.Add(base[static_cast<size_t>(o)], e_.Mul(at, Stride(o, dim)));
  }
}

BoxEmission::Value BoxEmission::EmitBlock(const Values&, Value, int) { XPUD_CHECK(false); }

// Each thread takes a block. Index arithmetic is in 32 bits if everything fits.
void BoxEmission::EmitThread() {
  Value const index = e_.Add(e_.Mul(e_.Group(0), e_.Lanes()), e_.Lane());
  if (space_.rank == 1) {
    EmitThreadOfLine(index);
  } else {
    EmitThreadOfBox(index);
  }
}

void BoxEmission::EmitThreadOfLine(Value index) {
  Value const first = e_.Mul(index, e_.I64(space_.block)), size = Size(0);
  if (space_.block == 1) {
    e_.If(e_.ir().CreateICmpSLT(first, size), [&] { Report(EmitElement(OffsetsAt({}, first), first)); });
    return;
  }
  Value const beyond = e_.Add(first, e_.I64(space_.block));
  Value const whole = e_.ir().CreateICmpSLE(beyond, size);
  e_.If(whole, [&] { Report(EmitBlock(OffsetsAt({}, first), first, space_.block)); });
  e_.If(e_.ir().CreateNot(whole),
        [&] { e_.Loop(first, size, e_.I64(1), [&](Value j) { Report(EmitElement(OffsetsAt({}, j), j)); }); });
}

// REQUIRES: the innermost dimension is a multiple of the block.
void BoxEmission::EmitThreadOfBox(Value index) {
  const int rank = space_.rank;
  auto* const type = space_.narrow ? e_.ir().getInt32Ty() : e_.ir().getInt64Ty();
  const auto narrow = [&](Value v) { return e_.ir().CreateTrunc(v, type); };
  const auto units = [&](int d) {
    return d == rank - 1 && space_.block > 1 ? e_.ir().CreateUDiv(Size(d), e_.I64(space_.block)) : Size(d);
  };
  Value total = units(0);
  for (int d = 1; d < rank; ++d) total = e_.Mul(total, units(d));
  e_.If(e_.ir().CreateICmpSLT(index, total), [&] {
    Values base(static_cast<size_t>(operands()), e_.I64(0));
    Value rest = narrow(index);
    for (int d = rank - 1; d >= 0; --d) {
      Value const size = narrow(units(d));
      Value at = d == 0 ? rest : e_.ir().CreateURem(rest, size);
      if (d > 0) rest = e_.ir().CreateUDiv(rest, size);
      at = e_.ir().CreateZExt(at, e_.ir().getInt64Ty());
      Step(base, d, d == rank - 1 ? e_.Mul(at, e_.I64(space_.block)) : at);
    }
    Value const first = e_.Mul(index, e_.I64(space_.block));
    Report(space_.block == 1 ? EmitElement(base, first) : EmitBlock(base, first, space_.block));
  });
}

namespace {

// Rows and columns of a tile: a warp accesses whole cache lines, also of small types.
int64_t TileOf(ops::DType type) { return ops::SizeOf(type) >= 4 ? 32 : 64; }
// Elements between rows of a tile in shared memory. The extra word spreads columns over the banks.
int64_t PitchOf(int64_t tile, ops::DType type) {
  return tile + std::max<int64_t>(1, 4 / static_cast<int64_t>(ops::SizeOf(type)));
}

}  // namespace

BoxEmission::Value BoxEmission::TileOffset(const Values& base, int operand, Value row, Value column) {
  const int rank = space_.rank;
  return e_.Add(base[static_cast<size_t>(operand)],
                e_.Add(e_.Mul(row, Stride(operand, rank - 2)), e_.Mul(column, Stride(operand, rank - 1))));
}

// Copies tiles of strided operands to shared memory. Neighbouring lanes read along the operands' rows; the
// tile is transposed.
BoxEmission::Values BoxEmission::StageTile(const Values& base, Value tile_row, Value tile_column) {
  const int64_t tile = TileOf(space_.dtypes[0]), step = int64_t{kGpuLanes} / tile;
  Value const lane_row = e_.ir().CreateURem(e_.Lane(), e_.I64(tile));
  Value const lane_column = e_.ir().CreateUDiv(e_.Lane(), e_.I64(tile));
  const auto last = [&](int dim) { return e_.ir().CreateSub(Size(dim), e_.I64(1)); };
  Value const row = e_.Min(e_.Add(tile_row, lane_row), last(space_.rank - 2));
  Values shared(static_cast<size_t>(operands()));
  for (int o = 0; o < operands(); ++o) {
    if (AccessOf(o) != Access::kStrided) continue;
    const ops::DType dtype = space_.dtypes[static_cast<size_t>(o)];
    const int64_t pitch = PitchOf(tile, dtype);
    llvm::Type* const type = e_.StorageOf(dtype);
    Value const array = shared[static_cast<size_t>(o)] = e_.Shared(type, static_cast<uint64_t>(tile * pitch));
    Values raw;
    for (int64_t k = 0; k < tile; k += step) {
      Value const column = e_.Min(e_.Add(tile_column, e_.Add(lane_column, e_.I64(k))), last(space_.rank - 1));
      raw.push_back(
          e_.LoadRaw(type, space_.pointers[static_cast<size_t>(o)], TileOffset(base, o, row, column)));
    }
    for (int64_t k = 0; k < tile; k += step) {
      Value const line = e_.Mul(e_.Add(lane_column, e_.I64(k)), e_.I64(pitch));
      e_.StoreRaw(array, e_.Add(line, lane_row), raw[static_cast<size_t>(k / step)]);
    }
  }
  e_.Barrier();
  return shared;
}

// Group x counts tiles of the innermost dimension, y of the next, z all further ones.
void BoxEmission::EmitTile() {
  const int rank = space_.rank;
  const int64_t tile = TileOf(space_.dtypes[0]), step = int64_t{kGpuLanes} / tile;
  const Values base = BaseOf(e_.Group(2));
  Value const tile_row = e_.Mul(e_.Group(1), e_.I64(tile)), tile_column = e_.Mul(e_.Group(0), e_.I64(tile));
  const Values shared = StageTile(base, tile_row, tile_column);
  Value const lane_column = e_.ir().CreateURem(e_.Lane(), e_.I64(tile));
  Value const lane_row = e_.ir().CreateUDiv(e_.Lane(), e_.I64(tile));
  Value const column = e_.Add(tile_column, lane_column);
  for (int64_t k = 0; k < tile; k += step) {
    Value const row_here = e_.Add(lane_row, e_.I64(k)), row = e_.Add(tile_row, row_here);
    Value const inside = e_.ir().CreateAnd(e_.ir().CreateICmpSLT(row, Size(rank - 2)),
                                           e_.ir().CreateICmpSLT(column, Size(rank - 1)));
    e_.If(inside, [&] {
      Values offsets = base;
      staged_.assign(offsets.size(), nullptr);
      for (int o = 0; o < operands(); ++o) {
        const auto at = static_cast<size_t>(o);
        if (!InMemory(o)) continue;
        offsets[at] = TileOffset(base, o, row, column);
        if (shared[at] == nullptr) continue;
        const ops::DType dtype = space_.dtypes[at];
        Value const line = e_.Mul(lane_column, e_.I64(PitchOf(tile, dtype)));
        staged_[at] = e_.LoadRaw(e_.StorageOf(dtype), shared[at], e_.Add(line, row_here));
      }
      EmitElement(offsets, nullptr);
      staged_.clear();
    });
  }
}

namespace {

// Below this many elements, latency matters more than bandwidth, so each of more threads does less.
constexpr int64_t kSmall = 128 * 1024;

}  // namespace

int BlockOf(const Layout& layout, std::span<const BoxOperand> operands) {
  int block = layout.numel() < kSmall ? 2 : 8;
  for (const BoxOperand& operand : operands) {
    if (operand.access == Access::kStrided) return 1;
    if (operand.access == Access::kContiguous)
      block = std::min(block, kBlockBytes / static_cast<int>(ops::SizeOf(operand.dtype)));
  }
  if (operands[0].access != Access::kContiguous) return 1;
  const auto fits = [&] {
    if (layout.rank > 1 && layout.inner() % block != 0) return false;
    for (int o = 0; o < layout.operands; ++o) {
      const BoxOperand& operand = operands[static_cast<size_t>(o)];
      if (operand.access != Access::kContiguous) continue;
      if (reinterpret_cast<uintptr_t>(operand.data) %
              (static_cast<size_t>(block) * ops::SizeOf(operand.dtype)) !=
          0)
        return false;
      for (int d = 0; d < layout.rank - 1; ++d) {
        if (layout.stride(o, d) % block != 0) return false;
      }
    }
    return true;
  };
  while (block > 1 && !fits()) block /= 2;
  return block;
}

bool FitsTiles(const Layout& layout, std::span<const BoxOperand> operands) {
  constexpr int64_t kMaxGroups = 65535;
  const int rank = layout.rank;
  if (rank < 2 || operands[0].access != Access::kContiguous) return false;
  const int64_t rows = layout.sizes[static_cast<size_t>(rank - 2)], tile = TileOf(operands[0].dtype);
  if (layout.numel() < kSmall || rows < 16 || layout.inner() < 16 || CeilDiv(rows, tile) > kMaxGroups ||
      layout.numel() / rows / layout.inner() > kMaxGroups)
    return false;
  bool strided = false;
  for (int o = 1; o < layout.operands; ++o) {
    if (operands[static_cast<size_t>(o)].access != Access::kStrided) continue;
    if (layout.stride(o, rank - 2) != 1) return false;
    strided = true;
  }
  return strided;
}

namespace {

void SetGpuGroups(const Layout& layout, BoxCut cut, ops::DType out, Launch& launch) {
  launch.group_size = {kGpuLanes, 1, 1};
  if (!cut.tiled) {
    launch.SetGroups(CeilDiv(CeilDiv(layout.numel(), cut.block), kGpuLanes));
    return;
  }
  const int64_t rows = layout.sizes[static_cast<size_t>(layout.rank - 2)], tile = TileOf(out);
  launch.SetGroups(CeilDiv(layout.inner(), tile), CeilDiv(rows, tile),
                   layout.numel() / rows / layout.inner());
}

}  // namespace

void PlanBox(Target target, const Layout& layout, std::span<const BoxOperand> operands, BoxCut cut,
             float nanoseconds, BoxArguments<Planned>& arguments, Launch& launch) {
  arguments.sizes = layout.sizes.data();
  for (size_t o = 0; o < operands.size(); ++o) arguments.strides[o] = layout.strides[o].data();
  arguments.inner_slice = arguments.row_slice = arguments.plane_slice = 0;
  if (target != Target::kHost) return SetGpuGroups(layout, cut, operands[0].dtype, launch);
  const int64_t total = layout.numel(), inner = layout.inner();
  const int64_t whole = SliceOf(total, nanoseconds);  // elements of a group
  const int64_t rows = layout.rank == 1 ? 1 : layout.sizes[static_cast<size_t>(layout.rank - 2)];
  const int64_t planes = total / inner / rows;
  const int64_t inner_slice = std::min(whole, inner);
  const int64_t row_slice = std::clamp<int64_t>(whole / inner_slice, 1, rows);
  const int64_t plane_slice = std::clamp<int64_t>(whole / (inner_slice * row_slice), 1, planes);
  arguments.inner_slice = inner_slice;
  arguments.row_slice = row_slice;
  arguments.plane_slice = plane_slice;
  launch.SetGroups(CeilDiv(inner, inner_slice), CeilDiv(rows, row_slice), CeilDiv(planes, plane_slice));
}

}  // namespace xpud::kernels
