// Loops over tiles, where loads are contiguous across the last dimension: such tiles are turned first, in the
// host's scratch or in the shared memory of a GPU's group.
#include <array>
#include <utility>

#include "kernels/loops/emission.h"

namespace xpud::kernels {
namespace {

using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;

// The side of a square of elements that are transposed in registers.
constexpr int kSquare = 8;

// Of kSquare vectors, each of kSquare elements. Halves that alternate, as often as 2 divides kSquare.
Values Transposed(llvm::IRBuilder<>& ir, Values lines) {
  constexpr int kHalf = kSquare / 2;
  for (int step = 1; step < kSquare; step *= 2) {
    Values next;
    for (size_t i = 0; i < kHalf; ++i) {
      for (const int first : {0, kHalf}) {
        std::array<int, kSquare> order;
        for (size_t k = 0; k < kHalf; ++k) {
          order[2 * k] = first + static_cast<int>(k);
          order[2 * k + 1] = order[2 * k] + kSquare;
        }
        next.push_back(ir.CreateShuffleVector(lines[i], lines[i + kHalf], order));
      }
    }
    lines = std::move(next);
  }
  return lines;
}

}  // namespace

// Tiles are numbered along the last dimension, then across, then along the others.
std::pair<Value, Value> LoopEmission::OpenTile(Value tile) {
  llvm::IRBuilder<>& ir = e_.ir();
  const size_t across = variant_.call().across, last = outer_ - 1;
  Value const columns = e_.I64(kLoopTileColumns), rows = e_.I64(kLoopTileRows);
  Value const tiles = e_.CeilDiv(extents_[last], columns), bands = e_.CeilDiv(extents_[across], rows);
  tile_column_ = e_.Mul(ir.CreateURem(tile, tiles), columns);
  Value number = ir.CreateUDiv(tile, tiles);
  tile_row_ = e_.Mul(ir.CreateURem(number, bands), rows);
  number = ir.CreateUDiv(number, bands);
  for (size_t d = last; d-- > 0;) {
    if (d == across) continue;
    iterators_[d] = ir.CreateURem(number, extents_[d]);
    number = ir.CreateUDiv(number, extents_[d]);
  }
  return {e_.Min(e_.Add(tile_row_, rows), extents_[across]),
          e_.Min(e_.Add(tile_column_, columns), extents_[last])};
}

void LoopEmission::EmitTiles(Value begin, Value end) {
  CheckedLoop(begin, end, e_.I64(1), [&](Value tile) {
    const auto [row_end, column_end] = OpenTile(tile);
    TurnTile(row_end, column_end);
    CheckedLoop(tile_row_, row_end, e_.I64(1), [&](Value i) {
      iterators_[variant_.call().across] = i;
      WithLineValues([&] {
        ForEachSegment(tile_column_, column_end, [&](Value first, Value end_of_segment) {
          EmitLine(first, end_of_segment, Emitter::LoopKind::kParallel);
        });
      });
    });
  });
}

// A warp's lanes read along `across`, and afterwards take points along the last dimension. Where the tile has
// no point, a lane computes the last one that there is, and stores nothing.
void LoopEmission::EmitGpuTile() {
  llvm::IRBuilder<>& ir = e_.ir();
  const auto [row_end, column_end] = OpenTile(e_.Group(0));
  TurnTileOfGroup(row_end, column_end);
  e_.Barrier();
  Value const warp = ir.CreateLShr(e_.Thread(), 5), lane = ir.CreateAnd(e_.Thread(), e_.I64(kWarpLanes - 1));
  block_dimension_ = outer_ - 1;
  block_.assign(kLoopTilePoints, now_);
  constexpr int64_t kSteps = kLoopTileColumns / kWarpLanes;
  for (int64_t number = 0; number < kLoopTilePoints; ++number) {
    Value const row = e_.Add(warp, e_.I64(number / kSteps * kGpuWarps)),
                column = e_.Add(lane, e_.I64(number % kSteps * kWarpLanes));
    Value const across = e_.Add(tile_row_, row), along = e_.Add(tile_column_, column);
    Made& made = block_[static_cast<size_t>(number)];
    made.across = e_.Min(across, ir.CreateSub(row_end, e_.I64(1)));
    made.iterator = e_.Min(along, ir.CreateSub(column_end, e_.I64(1)));
    made.is_there = ir.CreateAnd(ir.CreateICmpSLT(across, row_end), ir.CreateICmpSLT(along, column_end));
    made.place = e_.Add(e_.Mul(row, e_.I64(kLoopTilePitch)), column);
  }
  EmitPhases();
  CloseBlock();
}

void LoopEmission::TurnTileOfGroup(Value row_end, Value column_end) {
  llvm::IRBuilder<>& ir = e_.ir();
  const size_t across = variant_.call().across, last = outer_ - 1;
  Value const warp = ir.CreateLShr(e_.Thread(), 5), lane = ir.CreateAnd(e_.Thread(), e_.I64(kWarpLanes - 1));
  iterators_[across] = e_.Min(e_.Add(tile_row_, lane), ir.CreateSub(row_end, e_.I64(1)));
  for (uint32_t i = 0; i < body_.statements.size(); ++i) {
    if (!IsTurned(i)) continue;
    Value const tile = turned_[i] = e_.Shared(StorageOfLoad(i), kLoopTileRows * kLoopTilePitch);
    Values loaded, places;
    for (int64_t first = 0; first < kLoopTileColumns; first += kGpuWarps) {
      Value const column = e_.Add(warp, e_.I64(first));
      iterators_[last] = e_.Min(e_.Add(tile_column_, column), ir.CreateSub(column_end, e_.I64(1)));
      InScope([&] {
        loaded.push_back(e_.LoadRaw(StorageOfLoad(i), args_.buffers[At(i).operand], Index(At(i).index)));
      });
      places.push_back(e_.Add(e_.Mul(lane, e_.I64(kLoopTilePitch)), column));
    }
    for (size_t k = 0; k < loaded.size(); ++k) e_.StoreRaw(tile, places[k], loaded[k]);
  }
}

// Each is read along `across`, where it is contiguous: reads of a column at a time would find its cache lines
// gone again where their distance is a power of two.
void LoopEmission::TurnTile(Value row_end, Value column_end) {
  llvm::IRBuilder<>& ir = e_.ir();
  const size_t across = variant_.call().across, last = outer_ - 1;
  Value const side = e_.I64(kSquare);
  const auto whole = [&](Value begin, Value end) {
    Value const count = ir.CreateSub(end, begin);
    return e_.Add(begin, ir.CreateSub(count, ir.CreateURem(count, side)));
  };
  Value const whole_rows = whole(tile_row_, row_end), whole_columns = whole(tile_column_, column_end);
  for (uint32_t i = 0; i < body_.statements.size(); ++i) {
    if (!IsTurned(i)) continue;
    e_.Loop(tile_column_, whole_columns, side, [&](Value column) {
      e_.Loop(tile_row_, whole_rows, side, [&](Value row) { TurnSquare(i, row, column); });
    });
    e_.Loop(tile_column_, column_end, e_.I64(1), [&](Value column) {
      Value const in_squares = ir.CreateICmpSLT(column, whole_columns);
      e_.Loop(ir.CreateSelect(in_squares, whole_rows, tile_row_), row_end, e_.I64(1), [&](Value row) {
        InScope([&] {
          iterators_[last] = column;
          iterators_[across] = row;
          const auto [base, place] = PlaceInTile(i);
          Value const bits = e_.LoadRaw(StorageOfLoad(i), args_.buffers[At(i).operand], Index(At(i).index));
          e_.StoreRaw(base, place, bits);
        });
      });
    });
  }
}

void LoopEmission::TurnSquare(uint32_t i, Value row, Value column) {
  llvm::Type* const line = llvm::FixedVectorType::get(StorageOfLoad(i), kSquare);
  const size_t across = variant_.call().across, last = outer_ - 1;
  iterators_[across] = row;
  Values lines;
  for (int k = 0; k < kSquare; ++k) {
    InScope([&] {
      iterators_[last] = e_.Add(column, e_.I64(k));
      lines.push_back(e_.LoadRaw(line, args_.buffers[At(i).operand], Index(At(i).index)));
    });
  }
  lines = Transposed(e_.ir(), lines);
  iterators_[last] = column;
  for (int k = 0; k < kSquare; ++k) {
    iterators_[across] = e_.Add(row, e_.I64(k));
    const auto [base, place] = PlaceInTile(i);
    e_.StoreRaw(base, place, lines[static_cast<size_t>(k)]);
  }
}

std::pair<Value, Value> LoopEmission::PlaceInTile(uint32_t i) {
  if (e_.gpu()) return {turned_.at(i), now_.place};
  int64_t number = 0;
  for (uint32_t before = 0; before < i; ++before) number += IsTurned(before) ? 1 : 0;
  llvm::IRBuilder<>& ir = e_.ir();
  Value const base =
      ir.CreateInBoundsGEP(ir.getInt64Ty(), e_.Scratch(), e_.I64(number * kLoopTileColumns * kLoopTileRows));
  Value const row = ir.CreateSub(iterators_[variant_.call().across], tile_row_),
              column = ir.CreateSub(iterators_[outer_ - 1], tile_column_);
  return {base, e_.Add(e_.Mul(row, e_.I64(kLoopTileColumns)), column)};
}

}  // namespace xpud::kernels
