// LoopEmission: bodies whose memory is contiguous along the last outer dimension, and not along the reduced
// ones. What a row's lane has in registers is an array here, with an element for each column of a tile.
#include <algorithm>

#include "kernels/loops/emission.h"
#include "kernels/loops/reduction.h"
#include "proto/base/check.h"

namespace xpud::kernels {
namespace {

using loops::Statement;
using loops::StatementKind;
using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;

// Reduced positions that are added up before they are added to the rest, so that rounding errors stay small.
constexpr int64_t kChainOfColumns = 128;

}  // namespace

void LoopEmission::EmitColumns(Value begin, Value end) {
  llvm::IRBuilder<>& ir = e_.ir();
  kept_columns_.resize(body_.statements.size());
  // These are the same in all columns.
  for (uint32_t i = 0; i < body_.statements.size(); ++i) {
    const bool masked = variant_.info().statements[i].block != loops::kNone;
    const StatementKind kind = At(i).kind;
    if (!masked && (kind == StatementKind::kConstant || kind == StatementKind::kScalar)) EmitStatement(i);
  }
  Value const length = extents_[outer_ - 1], columns = e_.I64(kLoopColumns);
  Value const tiles = e_.CeilDiv(length, columns);
  CheckedLoop(begin, end, e_.I64(1), [&](Value tile) {
    Value const line = ir.CreateUDiv(tile, tiles);
    SetIterators(line, outer_ - 1);
    line_begin_ = e_.Mul(line, length);
    tile_begin_ = e_.Mul(ir.CreateURem(tile, tiles), columns);
    tile_count_ = e_.Min(ir.CreateSub(length, tile_begin_), columns);
    for (uint32_t p = 0; p <= passes_.passes(); ++p) {
      if (p == passes_.passes() && stage() == LoopStage::kParts) return StoreGivenColumns();
      EmitColumnPhase(p);
      if (p < passes_.passes()) EmitColumnPass(p);
    }
  });
}

void LoopEmission::StoreGivenColumns() {
  ForEachColumn([&] {
    for (uint32_t i = 0; i < body_.statements.size(); ++i)
      if (At(i).kind == StatementKind::kReduce) ReadValues({i});
    StoreGiven();
  });
}

void LoopEmission::ForEachColumn(const std::function<void()>& emit) {
  CheckedLoop(
      e_.I64(0), tile_count_, e_.I64(1),
      [&](Value column) {
        column_ = column;
        iterators_[outer_ - 1] = e_.Add(tile_begin_, column);
        now_.point = e_.Add(line_begin_, iterators_[outer_ - 1]);
        emit();
      },
      Emitter::LoopKind::kParallel);
}

void LoopEmission::EmitColumnPhase(uint32_t phase) {
  const LoopSection& section = passes_.phase[phase];
  if (std::ranges::find(section, true) == section.end()) return;
  ForEachColumn([&] {
    ReadValues(passes_.phase_uses[phase]);
    EmitSection(section, 0, static_cast<uint32_t>(section.size()));
    for (uint32_t i = 0; i < section.size(); ++i)
      if (section[i]) KeepValues(i);
  });
}

void LoopEmission::EmitColumnPass(uint32_t pass) {
  const PassState state = StateOf(pass);
  totals_ = MakeColumns(state.empty);
  sums_ = MakeColumns(state.empty);
  if (state.values > 0) ForEachColumn([&] { WriteColumns(totals_, state.empty); });
  pass_ = pass;
  FoldColumns(outer_, pass, state);
  pass_ = loops::kNone;
  if (state.values == 0) return;
  ForEachColumn([&] {
    for (const PassState::Part& part : state.parts)
      now_.first_pass[part.statement] = ReadColumns(kept_columns_[part.statement].first_pass);
    FinishPass(state, ReadColumns(totals_));
    for (const PassState::Part& part : state.parts) {
      const Values& made = now_.first_pass[part.statement];
      std::vector<ColumnArray>& kept = kept_columns_[part.statement].first_pass;
      if (kept.empty()) kept = MakeColumns(made);
      WriteColumns(kept, made);
      KeepValues(part.statement);
    }
  });
}

void LoopEmission::FoldColumns(size_t dimension, uint32_t pass, const PassState& state) {
  Value const one = e_.I64(1);
  const auto [begin, end] = RangeOf(dimension);
  if (dimension + 1 < rank_) {
    return CheckedLoop(begin, end, one, [&](Value i) {
      iterators_[dimension] = i;
      FoldColumns(dimension + 1, pass, state);
    });
  }
  const auto position = [&](Value i) {
    iterators_[dimension] = i;
    ForEachColumn([&] {
      ReadValues(passes_.pass_uses[pass]);
      for (const PassState::Part& part : state.parts)
        now_.first_pass[part.statement] = ReadColumns(kept_columns_[part.statement].first_pass);
      WriteColumns(sums_, EmitPosition(pass, state, ReadColumns(sums_)));
    });
  };
  if (state.values == 0) return CheckedLoop(begin, end, one, position);
  Value const chain = e_.I64(kChainOfColumns);
  Value const last = end;
  CheckedLoop(begin, end, chain, [&](Value from) {
    ForEachColumn([&] { WriteColumns(sums_, state.empty); });
    CheckedLoop(from, e_.Min(e_.Add(from, chain), last), one, position);
    ForEachColumn(
        [&] { WriteColumns(totals_, MergeStates(state, ReadColumns(totals_), ReadColumns(sums_))); });
  });
}

// ---- what is kept of each column

LoopEmission::ColumnArray LoopEmission::MakeColumns(llvm::Type* type) {
  const int64_t at = scratch_bytes_;
  scratch_bytes_ += kLoopColumns * static_cast<int64_t>(sizeof(int64_t));
  XPUD_CHECK(scratch_bytes_ <= kLoopScratchBytes);  // the planner saw to it
  return {at, type};
}

Value LoopEmission::BaseOf(const ColumnArray& array) {
  return e_.ir().CreateInBoundsGEP(e_.ir().getInt8Ty(), e_.Scratch(), e_.I64(array.at));
}

std::vector<LoopEmission::ColumnArray> LoopEmission::MakeColumns(const Values& like) {
  std::vector<ColumnArray> arrays;
  for (Value const value : like) arrays.push_back(MakeColumns(value->getType()));
  return arrays;
}

// A bool takes a byte.
Value LoopEmission::ReadColumn(const ColumnArray& array) {
  llvm::IRBuilder<>& ir = e_.ir();
  if (!array.type->isIntegerTy(1)) return e_.LoadRaw(array.type, BaseOf(array), column_);
  return ir.CreateICmpNE(e_.LoadRaw(ir.getInt8Ty(), BaseOf(array), column_), ir.getInt8(0));
}

Values LoopEmission::ReadColumns(const std::vector<ColumnArray>& arrays) {
  Values values;
  for (const ColumnArray& array : arrays) values.push_back(ReadColumn(array));
  return values;
}

void LoopEmission::WriteColumns(const std::vector<ColumnArray>& arrays, const Values& values) {
  for (size_t i = 0; i < arrays.size(); ++i) {
    const bool is_bool = arrays[i].type->isIntegerTy(1);
    e_.StoreRaw(BaseOf(arrays[i]), column_,
                is_bool ? e_.ir().CreateZExt(values[i], e_.ir().getInt8Ty()) : values[i]);
  }
}

void LoopEmission::ReadValues(const std::vector<uint32_t>& statements) {
  for (const uint32_t i : statements) {
    const ColumnValues& kept = kept_columns_[i];
    for (size_t k = 0; k < kept.parts.size(); ++k)
      if (kept.parts[k].type != nullptr) now_.values[i][k] = ReadColumn(kept.parts[k]);
    if (kept.valid.type != nullptr) now_.valid[i] = ReadColumn(kept.valid);
  }
}

// Only what another section uses.
void LoopEmission::KeepValues(uint32_t statement) {
  const auto uses = [&](const std::vector<std::vector<uint32_t>>& sections) {
    return std::ranges::any_of(sections, [&](const std::vector<uint32_t>& used) {
      return std::ranges::find(used, statement) != used.end();
    });
  };
  const StatementKind kind = At(statement).kind;
  if (kind == StatementKind::kConstant || kind == StatementKind::kScalar) return;
  const bool is_given = kind == StatementKind::kReduce && stage() == LoopStage::kParts;
  if (!is_given && !uses(passes_.phase_uses) && !uses(passes_.pass_uses)) return;
  ColumnValues& kept = kept_columns_[statement];
  const auto keep = [&](ColumnArray& array, Value value) {
    if (value == nullptr) return;
    if (array.type == nullptr) array = MakeColumns(value->getType());
    WriteColumns({array}, {value});
  };
  for (size_t k = 0; k < kept.parts.size(); ++k) keep(kept.parts[k], now_.values[statement][k]);
  keep(kept.valid, now_.valid[statement]);
}

}  // namespace xpud::kernels
