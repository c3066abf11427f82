// Writes the code of one body of a loop kernel, for any target.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/api/op_call.h"
#include "kernels/compiler/emitter.h"
#include "kernels/loops/arguments.h"
#include "kernels/loops/mask_segments.h"
#include "kernels/loops/passes.h"
#include "kernels/loops/variant.h"

namespace xpud::kernels {

// What a kernel uses of the host's scratch.
inline constexpr int64_t kLoopScratchBytes = 2 << 20;
// Points of the last outer dimension that are taken together as columns, and the sides of a tile.
inline constexpr int64_t kLoopColumns = 256, kLoopTileColumns = 64, kLoopTileRows = 32;
// Loads whose tiles are turned in the host's scratch, at most, and the bytes of such tiles in the shared
// memory of a GPU's group.
inline constexpr int64_t kMaxTurnedTiles = kLoopScratchBytes / (kLoopTileColumns * kLoopTileRows * 8);
inline constexpr int64_t kMaxTurnedBytes = 40 << 10;
// The rows of a tile in shared memory are so far apart that lanes which access a column use different banks.
inline constexpr int64_t kLoopTilePitch = kLoopTileColumns + 1;
// Points of a tile that a lane of a GPU takes.
inline constexpr int64_t kLoopTilePoints = kLoopTileRows * kLoopTileColumns / kGpuLanes;

// Used once.
class LoopEmission {
 public:
  using Value = llvm::Value*;
  using Values = std::vector<llvm::Value*>;

  LoopEmission(const LoopVariant& variant, const LoopArguments<Emitted>& arguments, Emitter& emitter);

  // Fills the open kernel. Returns Unimplemented for what the target cannot do.
  absl::Status Run();

 private:
  // What the loops of a pass carry: the states of its reductions, of its scans along the last dimension, and
  // the error to report.
  struct PassState {
    struct Part {
      uint32_t statement;
      int pass;
      size_t first, count;  // values
      bool scans;
    };
    std::vector<Part> parts;
    size_t values = 0;  // of all parts, at one point
    size_t points = 1;  // of the block
    bool scans = false;
    Values empty;  // the values at the start, and then that of the error, if there is one

    size_t all() const { return values * points; }
  };

  // Of the block's point `point`.
  static Values PartOf(const Values& all, const PassState& state, size_t point, const PassState::Part& part) {
    const auto first = all.begin() + static_cast<ptrdiff_t>(point * state.values + part.first);
    return {first, first + static_cast<ptrdiff_t>(part.count)};
  }
  LoopStage stage() const { return variant_.call().stage; }
  bool is_team() const { return e_.gpu() && variant_.call().schedule == LoopSchedule::kRows; }
  const loops::Statement& At(uint32_t i) const { return body_.statements[i]; }

  // Loops over points.
  void EmitHostPoints();
  void EmitLines(Value begin, Value end);
  void EmitLine(Value begin, Value end, Emitter::LoopKind kind);
  // Emits what is the same at all points of the loop along the last dimension, which `emit` then makes. A
  // value that an index needs would be read at each of them, and keep the loop from being vectorised.
  void WithLineValues(const std::function<void()>& emit);
  void EmitGpuPoints();
  void EmitPoint(Value point);
  // Sets the iterators of the first `dimensions` from their linear number.
  void SetIterators(Value number, size_t dimensions);
  void EmitPhases();
  PassState StateOf(uint32_t pass);
  void EmitPass(uint32_t pass);
  // Sets what the reductions of a pass have given.
  void FinishPass(const PassState& state, const Values& folded);
  // Returns how many positions the dimensions from `dimension` on have.
  Value PositionsOf(size_t dimension);
  // Folds the reduced dimensions from `dimension` on.
  Values Fold(size_t dimension, uint32_t pass, const PassState& state);
  Values FoldRange(size_t dimension, Value begin, Value end, uint32_t pass, const PassState& state);
  // A team's row that its lanes can hold: how many blocks each has; 0: a loop goes through them.
  int64_t HeldBlocks(Value positions) const;
  Values EmitPosition(uint32_t pass, const PassState& state, const Values& carried);
  Values MergeStates(const PassState& state, const Values& a, const Values& b);

  // Of a part: keeps what the reductions have given. Afterwards: merges that of all parts.
  void StoreGiven();
  void MergeGiven();
  // Where value `number` of the point is kept for a part.
  Value PlaceOf(size_t number, Value part);
  // The positions of a reduced dimension that are gone through: from the first to the second.
  std::pair<Value, Value> RangeOf(size_t dimension);

  // Points of tiles (tile_emission.cc).
  void EmitTiles(Value begin, Value end);
  void EmitGpuTile();
  // Sets the iterators of the other dimensions, and tile_row_ and tile_column_. Returns where its rows and
  // columns end.
  std::pair<Value, Value> OpenTile(Value tile);
  bool IsTurned(uint32_t i) const {
    return variant_.call().schedule == LoopSchedule::kTiles && variant_.call().in_block[i];
  }
  void TurnTile(Value row_end, Value column_end);
  // Of kSquare rows and columns, in registers.
  void TurnSquare(uint32_t i, Value row, Value column);
  void TurnTileOfGroup(Value row_end, Value column_end);
  // Where the bits of a load at this point of the tile are kept.
  std::pair<Value, Value> PlaceInTile(uint32_t i);
  llvm::Type* StorageOfLoad(uint32_t i) const {
    return e_.StorageOf(variant_.kernel().operands[At(i).operand].type);
  }

  // Points of adjacent columns (column_emission.cc).
  void EmitColumns(Value begin, Value end);
  void StoreGivenColumns();
  void EmitColumnPhase(uint32_t phase);
  void EmitColumnPass(uint32_t pass);
  void FoldColumns(size_t dimension, uint32_t pass, const PassState& state);
  // Runs `emit` for each column of the tile.
  void ForEachColumn(const std::function<void()>& emit);
  // An element for each column, in the host's scratch.
  struct ColumnArray {
    int64_t at = 0;              // bytes
    llvm::Type* type = nullptr;  // null: there is none
  };
  ColumnArray MakeColumns(llvm::Type* type);
  std::vector<ColumnArray> MakeColumns(const Values& like);
  Value BaseOf(const ColumnArray& array);
  Value ReadColumn(const ColumnArray& array);
  Values ReadColumns(const std::vector<ColumnArray>& arrays);
  void WriteColumns(const std::vector<ColumnArray>& arrays, const Values& values);
  // Sets the values that were made elsewhere, and keeps those of a statement.
  void ReadValues(const std::vector<uint32_t>& statements);
  void KeepValues(uint32_t statement);

  // Runs `emit` for each part of a range of the innermost dimension in which masks are known.
  void ForEachSegment(Value begin, Value end, const std::function<void(Value, Value)>& emit);
  // A loop that carries the error to be reported.
  void CheckedLoop(Value begin, Value end, Value step, const std::function<void(Value)>& body,
                   Emitter::LoopKind kind = Emitter::LoopKind::kPlain);

  // From here on, sections are emitted for all points or reduced positions of a block along `dimension`.
  void OpenBlock(size_t dimension);
  void CloseBlock() { block_.clear(); }
  // Runs `emit` for each of them, with its number; once where no block is open, or for one of them.
  void ForEachInBlock(const std::function<void(size_t)>& emit);
  // A load or store of the whole block.
  void AccessBlock(uint32_t i);

  // Statements from `from` to `to` that are in the section.
  void EmitSection(const LoopSection& section, uint32_t from, uint32_t to);
  void EmitStatement(uint32_t i);
  // As EmitStatement; keeps its value at this reduced position, or reads it.
  void EmitKept(uint32_t i);
  // What a mask covers, and its kUnmask, which has the number `end`.
  void EmitMasked(const LoopSection& section, uint32_t mask, uint32_t end);
  Value Stored(ops::DType type, Value value);
  Value Load(uint32_t i);
  void Store(uint32_t i);
  void AddAtomically(const loops::Statement& s, Value index, Value value);
  Value Call(uint32_t i);
  Value Random(uint32_t i);
  Value Bitcast(const loops::Statement& s);
  void CheckIndirect(uint32_t i);
  Value Search(uint32_t i);
  void Scan(uint32_t i);

  Value Index(uint32_t node);
  Value Divide(Value a, Value b, bool is_natural, bool remainder);
  Value ValueOf(uint32_t statement, size_t part = 0) const { return now_.values[statement][part]; }
  Value ValueOf(const loops::Statement& s, size_t which) const { return ValueOf(s.values[which]); }
  Scalar ScalarOfValue(uint32_t statement) const {
    return ScalarOf(variant_.info().statements[statement].type);
  }
  void Give(uint32_t statement, Value value) { now_.values[statement] = {value, nullptr, nullptr}; }
  // Whether the operand has an element `index`; reports it if not. Null: it is known to have it.
  Value Inside(uint32_t statement, Value index);
  void Report(uint32_t statement, Value bad, DeviceError error, Value index);
  // Runs `emit`; what it makes is forgotten afterwards, because what follows may not run after it.
  void InScope(const std::function<void()>& emit);
  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  const LoopVariant& variant_;
  const loops::Body& body_;
  const LoopArguments<Emitted>& args_;
  Emitter& e_;
  const LoopPasses passes_;
  const size_t outer_, rank_;
  const MaskSegments segments_;    // of the innermost dimension, on the host
  std::optional<size_t> segment_;  // whose loop is being emitted
  bool has_line_values_ = false;   // they were emitted
  bool is_serial_ = false;  // its points add to the same elements, so one group runs all in their order

  Values iterators_, extents_;
  // What a point or reduced position of a block has of its own.
  struct Made {
    // Of index nodes, and of the parts of statements; null: not made in this scope.
    Values indices;
    std::vector<std::array<Value, 3>> values;
    Values valid;                    // of each kIndirect: whether the index was in its bound
    std::vector<Values> first_pass;  // of each reduction of two passes: what the first one gave
    Value point = nullptr, iterator = nullptr;
    // Of a tile's point: its other iterator, its place in the group's tiles, and whether the tile has it.
    Value across = nullptr, place = nullptr, is_there = nullptr;
  };
  Made now_;                 // of the one being emitted
  std::vector<Made> block_;  // of all, while a block is open; now_ has that of the one being emitted instead
  size_t block_dimension_ = 0;
  bool is_one_of_block_ = false;  // one of them is being emitted
  // Of a row that is held: what each load gave for each block, and the block being emitted.
  std::map<std::pair<uint32_t, int64_t>, Values> held_;
  std::optional<int64_t> held_block_;
  Value part_ = nullptr;
  uint32_t pass_ = loops::kNone;  // being emitted
  // kColumns: the first column of the tile and how many it has, the one being emitted, and what is kept of
  // each statement: its parts, whether its index is valid, and what its first pass gave.
  struct ColumnValues {
    std::array<ColumnArray, 3> parts;
    ColumnArray valid;
    std::vector<ColumnArray> first_pass;
  };
  Value tile_row_ = nullptr, tile_column_ = nullptr;  // kTiles: the first ones of the tile
  std::map<uint32_t, Value> turned_;                  // by load: the group's tile in shared memory
  Value line_begin_ = nullptr;                        // its first point
  Value tile_begin_ = nullptr, tile_count_ = nullptr, column_ = nullptr;
  std::vector<ColumnValues> kept_columns_;
  std::vector<ColumnArray> totals_, sums_;  // of the states of the pass
  int64_t scratch_bytes_ = 0;               // taken by them
  // While a pass runs: the scans' states, by statement.
  std::vector<Values> scan_states_;
  Value code_ = nullptr;  // to be reported; null: nothing is checked
  absl::Status status_;
};

}  // namespace xpud::kernels
