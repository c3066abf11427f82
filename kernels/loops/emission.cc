#include "kernels/loops/emission.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/api/op_call.h"
#include "kernels/compiler/lowering.h"
#include "kernels/families/cascade.h"
#include "kernels/loops/functions.h"
#include "kernels/loops/reduction.h"
#include "proto/base/check.h"

namespace xpud::kernels {
namespace {

using loops::IndexNode;
using loops::IndexOp;
using loops::kNone;
using loops::Statement;
using loops::StatementKind;
using ops::DType;
using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;

// Positions that a lane of the host reduces in one loop: the results of such blocks are merged in pairs.
constexpr int64_t kBlock = 4096;
// Blocks that a lane of a GPU holds in registers.
constexpr int64_t kMaxHeldBlocks = 4;
// Of an outer one of several reduced dimensions.
constexpr int64_t kRowsInAChain = 16;

std::optional<int64_t> ConstantOf(Value value) {
  if (const auto* const constant = llvm::dyn_cast<llvm::ConstantInt>(value)) return constant->getSExtValue();
  return std::nullopt;
}

}  // namespace

LoopEmission::LoopEmission(const LoopVariant& variant, const LoopArguments<Emitted>& arguments,
                           Emitter& emitter)
    : variant_(variant),
      body_(variant.body()),
      args_(arguments),
      e_(emitter),
      passes_(body_, variant.info(), variant.call().keeps_rows),
      outer_(body_.outer),
      rank_(body_.extents.size()),
      segments_(e_.gpu() || rank_ == 0 ? MaskSegments()
                                       : MaskSegments::Of(body_, static_cast<uint32_t>(rank_ - 1))),
      iterators_(rank_),
      scan_states_(body_.statements.size()) {
  now_.indices.resize(body_.indices.size());
  now_.values.resize(body_.statements.size());
  now_.valid.resize(body_.statements.size());
  now_.first_pass.resize(body_.statements.size());
  for (const Statement& s : body_.statements) is_serial_ |= s.kind == StatementKind::kAtomicAdd;
  is_serial_ &= !e_.gpu();
}

absl::Status LoopEmission::Run() {
  for (const uint32_t extent : body_.extents) extents_.push_back(Index(extent));
  if (variant_.reports()) code_ = e_.I64(0);
  if (stage() == LoopStage::kParts) part_ = e_.Group(1);
  if (e_.gpu()) {
    EmitGpuPoints();
  } else {
    EmitHostPoints();
  }
  return status_;
}

// ---- points

void LoopEmission::CheckedLoop(Value begin, Value end, Value step, const std::function<void(Value)>& body,
                               Emitter::LoopKind kind) {
  Values carried;
  if (code_ != nullptr) carried.push_back(code_);
  const bool checked = code_ != nullptr;
  carried = e_.Loop(
      begin, end, step, carried,
      [&](Value i, const Values& now) {
        if (checked) code_ = now[0];
        InScope([&] { body(i); });
        return checked ? Values{code_} : Values{};
      },
      kind);
  if (checked) code_ = carried[0];
}

void LoopEmission::ForEachSegment(Value begin, Value end, const std::function<void(Value, Value)>& emit) {
  for (size_t number = 0; number < segments_.size(); ++number) {
    const auto bound = [&](size_t at) { return e_.I64(segments_.ends[at]); };
    Value const from =
        number == 0 ? begin : e_.ir().CreateBinaryIntrinsic(llvm::Intrinsic::smax, begin, bound(number - 1));
    Value const to = number == segments_.ends.size() ? end : e_.Min(end, bound(number));
    segment_ = number;
    emit(from, to);
  }
  segment_.reset();
}

void LoopEmission::EmitHostPoints() {
  Value const begin = e_.Mul(e_.Group(0), args_.slice),
              end = e_.Min(e_.Add(begin, args_.slice), args_.points);
  switch (variant_.call().schedule) {
    case LoopSchedule::kColumns:
      EmitColumns(begin, end);
      break;
    case LoopSchedule::kTiles:
      EmitTiles(begin, end);
      break;
    case LoopSchedule::kPoints:
    case LoopSchedule::kRows:
      EmitLines(begin, end);
      break;
  }
  if (code_ != nullptr) e_.ReportCode(args_.error_word, code_);
}

// The innermost outer dimension is a loop of its own, where nothing is reduced.
void LoopEmission::EmitLines(Value begin, Value end) {
  using LoopKind = Emitter::LoopKind;
  llvm::IRBuilder<>& ir = e_.ir();
  const LoopKind kind = rank_ == outer_ && !is_serial_ ? LoopKind::kParallel : LoopKind::kPlain;
  const auto points = [&](Value from, Value to) {
    CheckedLoop(from, to, e_.I64(1), [&](Value i) { EmitPoint(i); }, kind);
  };
  if (rank_ > outer_) return points(begin, end);
  if (outer_ < 2) return WithLineValues([&] { ForEachSegment(begin, end, points); });
  Value const length = extents_[outer_ - 1], zero = e_.I64(0);
  Value const first = ir.CreateUDiv(begin, length), rows = e_.CeilDiv(end, length);
  CheckedLoop(first, rows, e_.I64(1), [&](Value row) {
    Value const start = e_.Mul(row, length), from = ir.CreateSub(begin, start);
    SetIterators(row, outer_ - 1);
    Value const line_begin = ir.CreateSelect(ir.CreateICmpSGT(from, zero), from, zero),
                line_end = e_.Min(ir.CreateSub(end, start), length);
    WithLineValues([&] {
      ForEachSegment(line_begin, line_end, [&](Value first, Value last) { EmitLine(first, last, kind); });
    });
  });
}

void LoopEmission::EmitLine(Value begin, Value end, Emitter::LoopKind kind) {
  CheckedLoop(
      begin, end, e_.I64(1),
      [&](Value i) {
        iterators_[outer_ - 1] = i;
        EmitPhases();
      },
      kind);
}

void LoopEmission::WithLineValues(const std::function<void()>& emit) {
  for (uint32_t i = 0; i < body_.statements.size(); ++i)
    if (passes_.is_of_line[i] && passes_.phase[0][i]) EmitStatement(i);
  has_line_values_ = true;
  emit();
  has_line_values_ = false;
}

void LoopEmission::EmitGpuPoints() {
  if (variant_.call().schedule == LoopSchedule::kTiles) {
    EmitGpuTile();
    if (code_ != nullptr) e_.ReportCode(args_.error_word, code_);
    return;
  }
  if (is_team() && variant_.call().warps) e_.UseWarps();
  Value point = is_team() ? e_.Team() : e_.Add(e_.Mul(e_.Group(0), e_.I64(kGpuLanes)), e_.Thread());
  if (!is_team()) point = e_.Mul(point, e_.I64(variant_.call().block));
  e_.If(e_.ir().CreateICmpSLT(point, args_.points), [&] {
    EmitPoint(point);
    if (code_ != nullptr) e_.ReportCode(args_.error_word, code_);
  });
}

void LoopEmission::EmitPoint(Value point) {
  now_.point = point;
  SetIterators(point, outer_);
  const bool opens = !is_team() && variant_.call().block > 1;
  if (opens) OpenBlock(outer_ - 1);
  EmitPhases();
  if (opens) CloseBlock();
}

void LoopEmission::SetIterators(Value number, size_t dimensions) {
  for (size_t d = dimensions; d-- > 0;) {
    iterators_[d] = d == 0 ? number : e_.ir().CreateURem(number, extents_[d]);
    if (d > 0) number = e_.ir().CreateUDiv(number, extents_[d]);
  }
}

void LoopEmission::EmitPhases() {
  const auto all = static_cast<uint32_t>(body_.statements.size());
  const auto passes = static_cast<uint32_t>(passes_.passes());
  for (uint32_t p = 0; p <= passes; ++p) {
    if (p == passes && stage() == LoopStage::kParts) return StoreGiven();
    EmitSection(passes_.phase[p], 0, all);
    if (p == passes) return;
    if (stage() == LoopStage::kMerge) {
      if (p == 0) MergeGiven();
      continue;
    }
    if (passes_.stores_conflict && is_team()) {
      if (e_.warps()) {
        e_.WarpBarrier();
      } else {
        e_.Barrier();
      }
    }
    EmitPass(p);
  }
}

Value LoopEmission::PlaceOf(size_t number, Value part) {
  Value points = e_.I64(1);
  for (size_t d = 0; d < outer_; ++d) points = e_.Mul(points, extents_[d]);
  Value const row = e_.Add(e_.Mul(e_.I64(static_cast<int64_t>(number)), args_.parts), part);
  return e_.Add(e_.Mul(row, points), now_.point);
}

void LoopEmission::StoreGiven() {
  size_t number = 0;
  const auto store = [&] {
    for (uint32_t i = 0; i < body_.statements.size(); ++i) {
      if (At(i).kind != StatementKind::kReduce) continue;
      for (int k = 0; k < loops::InfoOf(At(i).reduction).gives; ++k) {
        Value value = ValueOf(i, static_cast<size_t>(k));
        if (value->getType()->isIntegerTy()) value = e_.ir().CreateZExt(value, e_.ir().getInt64Ty());
        // A float takes the first half of its place.
        Value const place = PlaceOf(number++, part_);
        const int64_t steps = 8 / (static_cast<int64_t>(value->getType()->getPrimitiveSizeInBits()) / 8);
        e_.StoreRaw(args_.workspace, e_.Mul(place, e_.I64(steps)), value);
      }
    }
  };
  if (!is_team())
    return ForEachInBlock([&](size_t) {
      number = 0;
      store();
    });
  e_.If(e_.ir().CreateICmpEQ(e_.Lane(), e_.I64(0)), store);
}

void LoopEmission::MergeGiven() {
  size_t first = 0;
  for (uint32_t i = 0; i < body_.statements.size(); ++i) {
    const Statement& s = At(i);
    if (s.kind != StatementKind::kReduce) continue;
    const size_t gives = static_cast<size_t>(loops::InfoOf(s.reduction).gives);
    ReductionEmission reduction(e_, s.reduction, ScalarOf(s.type), 0);
    const auto load = [&](Value part) {
      Values values;
      for (size_t k = 0; k < gives; ++k) {
        const bool is_position = k == 1 && loops::InfoOf(s.reduction).takes == 2;
        llvm::Type* const type = e_.TypeOf(is_position ? Scalar::kI64 : ScalarOf(s.type));
        const bool integer = type->isIntegerTy();
        llvm::Type* const stored = integer ? e_.ir().getInt64Ty() : type;
        const int64_t steps = 8 / (static_cast<int64_t>(stored->getPrimitiveSizeInBits()) / 8);
        Value const value =
            e_.LoadRaw(stored, args_.workspace, e_.Mul(PlaceOf(first + k, part), e_.I64(steps)));
        values.push_back(integer ? e_.ir().CreateTrunc(value, type) : value);
      }
      return values;
    };
    const auto merge = [&](const Values& a, const Values& b) { return reduction.MergeGiven(a, b); };
    Cascade cascade(e_, reduction.EmptyGiven(), merge);
    const Values made = cascade.Fold(e_.I64(0), args_.parts, e_.I64(kChain), [&](Value from, Value to) {
      return e_.Loop(e_.Add(from, e_.I64(1)), to, e_.I64(1), load(from),
                     [&](Value part, const Values& now) { return merge(now, load(part)); });
    });
    for (size_t k = 0; k < gives; ++k) now_.values[i][k] = made[k];
    first += gives;
  }
}

// ---- passes

Value LoopEmission::PositionsOf(size_t dimension) {
  Value count = e_.I64(1);
  for (size_t d = dimension; d < rank_; ++d) {
    const auto [begin, end] = RangeOf(d);
    count = e_.Mul(count, e_.ir().CreateSub(end, begin));
  }
  return count;
}

std::pair<Value, Value> LoopEmission::RangeOf(size_t dimension) {
  if (stage() != LoopStage::kParts || dimension != variant_.call().cut)
    return {e_.I64(0), extents_[dimension]};
  Value const begin = e_.Mul(part_, args_.part_length);
  return {begin, e_.Min(e_.Add(begin, args_.part_length), extents_[dimension])};
}

LoopEmission::PassState LoopEmission::StateOf(uint32_t pass) {
  PassState state;
  for (uint32_t i = 0; i < body_.statements.size(); ++i) {
    const Statement& s = At(i);
    const bool scans = s.kind == StatementKind::kScan;
    if (!passes_.pass[pass][i] || (!scans && s.kind != StatementKind::kReduce)) continue;
    const int number = scans ? 0 : static_cast<int>(pass - passes_.first_pass[i]);
    const Values empty = ReductionEmission(e_, s.reduction, ScalarOf(s.type), number).Empty();
    state.parts.push_back({i, number, state.empty.size(), empty.size(), scans});
    state.empty.insert(state.empty.end(), empty.begin(), empty.end());
    state.scans |= scans;
  }
  state.values = state.empty.size();
  state.points = std::max<size_t>(block_.size(), 1);
  const Values one = state.empty;
  for (size_t point = 1; point < state.points; ++point)
    state.empty.insert(state.empty.end(), one.begin(), one.end());
  return state;
}

void LoopEmission::EmitPass(uint32_t pass) {
  PassState state = StateOf(pass);
  Value const code = code_;
  if (code != nullptr) state.empty.push_back(e_.I64(0));
  pass_ = pass;
  Values folded = Fold(outer_, pass, state);
  pass_ = kNone;
  if (code != nullptr) {
    code_ = e_.ir().CreateBinaryIntrinsic(llvm::Intrinsic::umax, code, folded.back());
    folded.pop_back();
  }
  if (is_team() && !folded.empty())
    folded =
        e_.MergeLanes(folded, [&](const Values& a, const Values& b) { return MergeStates(state, a, b); });
  FinishPass(state, folded);
}

void LoopEmission::FinishPass(const PassState& state, const Values& folded) {
  Value const count = PositionsOf(outer_);
  ForEachInBlock([&](size_t point) {
    for (const PassState::Part& part : state.parts) {
      if (part.scans) continue;
      const Statement& s = At(part.statement);
      Values& before = now_.first_pass[part.statement];
      before = ReductionEmission(e_, s.reduction, ScalarOf(s.type), part.pass)
                   .Finish(PartOf(folded, state, point, part), before, count);
      if (part.pass + 1 < PassesOf(s.reduction)) continue;
      for (size_t k = 0; k < before.size(); ++k) now_.values[part.statement][k] = before[k];
    }
  });
}

Values LoopEmission::MergeStates(const PassState& state, const Values& a, const Values& b) {
  Values merged = a;  // a scan's state is no result
  for (size_t point = 0; point < state.points; ++point) {
    for (const PassState::Part& part : state.parts) {
      if (part.scans) continue;
      const Statement& s = At(part.statement);
      const Values both = ReductionEmission(e_, s.reduction, ScalarOf(s.type), part.pass)
                              .Merge(PartOf(a, state, point, part), PartOf(b, state, point, part));
      std::ranges::copy(both, merged.begin() + static_cast<ptrdiff_t>(point * state.values + part.first));
    }
  }
  if (a.size() > state.all())
    merged.back() = e_.ir().CreateBinaryIntrinsic(llvm::Intrinsic::umax, a.back(), b.back());
  return merged;
}

Values LoopEmission::Fold(size_t dimension, uint32_t pass, const PassState& state) {
  const auto [begin, end] = RangeOf(dimension);
  const bool is_last = dimension + 1 == rank_;
  const int64_t block = is_last ? kBlock : kRowsInAChain;
  const std::optional<int64_t> constant = ConstantOf(end);
  const bool is_short = constant && *constant <= block;
  if (e_.gpu() || is_short || state.scans || state.values == 0)
    return FoldRange(dimension, begin, end, pass, state);
  Cascade cascade(e_, state.empty,
                  [&](const Values& a, const Values& b) { return MergeStates(state, a, b); });
  return cascade.Fold(begin, end, e_.I64(block),
                      [&](Value from, Value to) { return FoldRange(dimension, from, to, pass, state); });
}

int64_t LoopEmission::HeldBlocks(Value positions) const {
  const int64_t lanes = e_.warps() ? kWarpLanes : kGpuLanes, block = variant_.call().block;
  const std::optional<int64_t> constant = ConstantOf(positions);
  if (!is_team() || block == 1 || rank_ != outer_ + 1 || stage() != LoopStage::kWhole || !constant ||
      *constant % (lanes * block) != 0 || *constant > kMaxHeldBlocks * lanes * block)
    return 0;
  return *constant / (lanes * block);
}

Values LoopEmission::FoldRange(size_t dimension, Value begin, Value end, uint32_t pass,
                               const PassState& state) {
  const bool is_last = dimension + 1 == rank_;
  const bool shares = is_last && is_team();
  Value const block = e_.I64(shares ? variant_.call().block : 1);
  Value const first = shares ? e_.Add(begin, e_.Mul(e_.Lane(), block)) : begin;
  Value const step = shares ? e_.Mul(e_.Lanes(), block) : block;
  const bool independent = is_last && !state.scans && !is_serial_;
  if (const int64_t held = HeldBlocks(end); held > 0) {
    Values carried = state.empty;
    for (held_block_ = 0; *held_block_ < held; ++*held_block_) {
      InScope([&] {
        iterators_[dimension] = e_.Add(first, e_.Mul(step, e_.I64(*held_block_)));
        carried = EmitPosition(pass, state, carried);
      });
    }
    held_block_.reset();
    return carried;
  }
  Values folded = state.empty;
  const auto loop = [&](Value from, Value to) {
    folded = e_.Loop(
        from, to, step, folded,
        [&](Value i, const Values& carried) {
          Values after;
          InScope([&] {
            iterators_[dimension] = i;
            after = is_last ? EmitPosition(pass, state, carried)
                            : MergeStates(state, carried, Fold(dimension + 1, pass, state));
          });
          return after;
        },
        independent ? Emitter::LoopKind::kParallel : Emitter::LoopKind::kPlain);
  };
  if (is_last) {
    ForEachSegment(first, end, loop);
  } else {
    loop(first, end);
  }
  return folded;
}

Values LoopEmission::EmitPosition(uint32_t pass, const PassState& state, const Values& carried) {
  const bool reports = carried.size() > state.all();
  if (reports) code_ = carried.back();
  for (const PassState::Part& part : state.parts)
    if (part.scans) scan_states_[part.statement] = PartOf(carried, state, 0, part);
  // The positions of a team's block are added to one state.
  const bool opens = is_team() && variant_.call().block > 1;
  if (opens) OpenBlock(rank_ - 1);
  EmitSection(passes_.pass[pass], 0, static_cast<uint32_t>(body_.statements.size()));
  Values after(carried.begin(), carried.begin() + static_cast<ptrdiff_t>(state.all()));
  ForEachInBlock([&](size_t number) {
    const size_t point = opens ? 0 : number;
    for (const PassState::Part& part : state.parts) {
      const Statement& s = At(part.statement);
      Values next = scan_states_[part.statement];
      if (!part.scans) {
        Values taken;
        for (size_t k = 0; k < static_cast<size_t>(loops::InfoOf(s.reduction).takes); ++k)
          taken.push_back(ValueOf(s, k));
        next = ReductionEmission(e_, s.reduction, ScalarOf(s.type), part.pass)
                   .Take(PartOf(after, state, point, part), taken, now_.first_pass[part.statement]);
      }
      std::ranges::copy(next, after.begin() + static_cast<ptrdiff_t>(point * state.values + part.first));
    }
  });
  if (opens) CloseBlock();
  if (reports) after.push_back(code_);
  return after;
}

// ---- statements

void LoopEmission::InScope(const std::function<void()>& emit) {
  const Made now = now_;
  const std::vector<Made> block = block_;
  emit();
  now_ = now;
  block_ = block;
}

void LoopEmission::OpenBlock(size_t dimension) {
  block_dimension_ = dimension;
  block_.assign(variant_.call().block, now_);
  for (size_t number = 0; number < block_.size(); ++number) {
    Value const offset = e_.I64(static_cast<int64_t>(number));
    block_[number].iterator = e_.Add(iterators_[dimension], offset);
    if (dimension < outer_) block_[number].point = e_.Add(now_.point, offset);
  }
}

void LoopEmission::ForEachInBlock(const std::function<void(size_t)>& emit) {
  if (block_.empty() || is_one_of_block_) return emit(0);
  is_one_of_block_ = true;
  Value const iterator = iterators_[block_dimension_];
  for (size_t number = 0; number < block_.size(); ++number) {
    std::swap(now_, block_[number]);
    iterators_[block_dimension_] = now_.iterator;
    if (now_.across != nullptr) iterators_[variant_.call().across] = now_.across;
    emit(number);
    std::swap(now_, block_[number]);
  }
  iterators_[block_dimension_] = iterator;
  is_one_of_block_ = false;
}

void LoopEmission::AccessBlock(uint32_t i) {
  const Statement& s = At(i);
  const DType type = variant_.kernel().operands[s.operand].type;
  const Scalar scalar = ScalarOf(type);
  Value const buffer = args_.buffers[s.operand];
  const int count = static_cast<int>(block_.size());
  Value first = nullptr;  // index
  Values values;
  ForEachInBlock([&](size_t number) {
    if (number == 0) first = Index(s.index);
    if (s.kind == StatementKind::kStore) values.push_back(ValueOf(s, 0));
  });
  if (s.kind == StatementKind::kStore) return e_.StoreBlock(type, buffer, first, values, scalar);
  // What a pass has read, later ones need not read again.
  Values* const held = held_block_ ? &held_[{i, *held_block_}] : nullptr;
  values = held != nullptr && !held->empty() ? *held : e_.LoadBlock(type, buffer, first, scalar, count);
  if (held != nullptr) *held = values;
  ForEachInBlock([&](size_t number) { Give(i, values[number]); });
}

void LoopEmission::EmitSection(const LoopSection& section, uint32_t from, uint32_t to) {
  for (uint32_t i = from; i < to; ++i) {
    if (!section[i] || At(i).kind == StatementKind::kReduce) continue;
    if (stage() == LoopStage::kParts && HasEffect(At(i))) continue;  // the second kernel does it
    if (has_line_values_ && passes_.is_of_line[i]) continue;
    const bool is_whole =
        !block_.empty() && !is_one_of_block_ && variant_.call().block > 1 && variant_.call().in_block[i];
    if (At(i).kind == StatementKind::kMask) {
      const uint32_t end = i + 1 + static_cast<uint32_t>(At(i).integer);
      ForEachInBlock([&](size_t) { EmitMasked(section, i, end); });
      i = end;
    } else if (is_whole && passes_.stored_by[i] == kNone) {
      AccessBlock(i);
    } else {
      ForEachInBlock([&](size_t) { EmitKept(i); });
    }
  }
}

void LoopEmission::EmitKept(uint32_t i) {
  if (IsTurned(i)) {
    const auto [base, index] = PlaceInTile(i);
    const DType type = variant_.kernel().operands[At(i).operand].type;
    return Give(i, e_.FromStorage(type, e_.LoadRaw(StorageOfLoad(i), base, index), ScalarOfValue(i)));
  }
  const auto found = std::ranges::find(passes_.kept, i);
  if (pass_ == kNone || found == passes_.kept.end()) return EmitStatement(i);
  const auto number = found - passes_.kept.begin();
  Value count = e_.I64(1), position = e_.I64(0);
  for (size_t d = outer_; d < rank_; ++d) count = e_.Mul(count, extents_[d]);
  for (size_t d = outer_; d < rank_; ++d) position = e_.Add(e_.Mul(position, extents_[d]), iterators_[d]);
  Value const row =
      e_.ir().CreateInBoundsGEP(e_.ir().getInt64Ty(), e_.Scratch(), e_.Mul(count, e_.I64(number)));
  if (passes_.kept_in[static_cast<size_t>(number)] < pass_)
    return Give(i, e_.LoadRaw(e_.TypeOf(ScalarOfValue(i)), row, position));
  EmitStatement(i);
  e_.StoreRaw(row, position, ValueOf(i));
}

void LoopEmission::EmitMasked(const LoopSection& section, uint32_t mask, uint32_t end) {
  Values otherwise;
  if (section[end]) otherwise.push_back(ValueOf(At(end), 2));
  if (code_ != nullptr) otherwise.push_back(code_);
  const Values made = e_.Where(ValueOf(At(mask), 0), otherwise, [&] {
    Values values;
    InScope([&] {
      EmitSection(section, mask + 1, end);
      if (section[end]) values.push_back(ValueOf(At(end), 1));
    });
    if (code_ != nullptr) values.push_back(code_);
    return values;
  });
  if (section[end]) Give(end, made[0]);
  if (code_ != nullptr) code_ = made.back();
}

void LoopEmission::EmitStatement(uint32_t i) {
  const Statement& s = At(i);
  switch (s.kind) {
    case StatementKind::kConstant: {
      const Scalar scalar = ScalarOf(s.type);
      return Give(i, IsFloat(scalar) ? e_.Constant(scalar, s.real) : e_.IntegerConstant(scalar, s.integer));
    }
    case StatementKind::kScalar: {
      const Scalar scalar = ScalarOf(variant_.kernel().operands[s.operand].type);
      return Give(i, e_.Convert(args_.scalars[s.operand], IsFloat(scalar) ? scalar : Scalar::kI64, scalar));
    }
    case StatementKind::kLoad:
      return Give(i, Load(i));
    case StatementKind::kStore:
    case StatementKind::kAtomicAdd:
      return Store(i);
    case StatementKind::kCall:
      return Give(i, Call(i));
    case StatementKind::kConvert:
      return Give(i, e_.Convert(ValueOf(s, 0), ScalarOfValue(s.values[0]), ScalarOf(s.type)));
    case StatementKind::kRound:
      return Give(i, Stored(s.type, ValueOf(s, 0)));
    case StatementKind::kBitcast:
      return Give(i, Bitcast(s));
    case StatementKind::kIndexValue:
      return Give(i, Index(s.index));
    case StatementKind::kIndirect:
      return CheckIndirect(i);
    case StatementKind::kPart:
      return Give(i, ValueOf(s.values[0], static_cast<size_t>(s.integer)));
    case StatementKind::kRandom:
      return Give(i, Random(i));
    case StatementKind::kSearch:
      return Give(i, Search(i));
    case StatementKind::kScan:
      return Scan(i);
    case StatementKind::kAssert:
      return Report(i, e_.ir().CreateNot(ValueOf(s, 0)), DeviceError::kAssertion, e_.I64(0));
    case StatementKind::kReduce:
    case StatementKind::kMask:
    case StatementKind::kUnmask:
      break;
  }
  XPUD_CHECK(false);  // the loops and blocks emit these
}

void LoopEmission::Report(uint32_t statement, Value bad, DeviceError error, Value index) {
  llvm::IRBuilder<>& ir = e_.ir();
  constexpr int64_t kIndexMask = (int64_t{1} << kLoopIndexBits) - 1;
  const uint64_t number = uint64_t{variant_.first_statement()} + statement;
  const uint64_t constant = number << (8 + kLoopIndexBits) | static_cast<uint64_t>(error);
  Value const code = ir.CreateOr(ir.CreateShl(ir.CreateAnd(index, e_.I64(kIndexMask)), 8),
                                 e_.I64(static_cast<int64_t>(constant)));
  Value const reported = ir.CreateSelect(bad, code, e_.I64(0));
  code_ = ir.CreateBinaryIntrinsic(llvm::Intrinsic::umax, code_, reported);
}

Value LoopEmission::Inside(uint32_t statement, Value index) {
  if (!variant_.call().guarded[statement]) return nullptr;
  Value const inside = e_.IsIndex(index, args_.elements[At(statement).operand]);
  Report(statement, e_.ir().CreateNot(inside), DeviceError::kIndexOutOfRange, index);
  return inside;
}

// The value that an element has once it is stored.
Value LoopEmission::Stored(DType type, Value value) {
  const Scalar scalar = ScalarOf(type);
  if (loops::ComputeTypeOf(type) == type) return value;
  return e_.FromStorage(type, e_.ToStorage(type, value, scalar), scalar);
}

Value LoopEmission::Load(uint32_t i) {
  const Statement& s = At(i);
  const DType type = variant_.kernel().operands[s.operand].type;
  const Scalar scalar = ScalarOf(type);
  if (passes_.stored_by[i] != kNone) return Stored(type, ValueOf(At(passes_.stored_by[i]), 0));
  Value const index = Index(s.index), inside = Inside(i, index);
  const auto load = [&] { return e_.Load(type, args_.buffers[s.operand], index, scalar); };
  if (inside == nullptr) return load();
  return e_.Where(inside, {e_.IntegerConstant(scalar, 0)}, [&] { return Values{load()}; })[0];
}

void LoopEmission::Store(uint32_t i) {
  const Statement& s = At(i);
  llvm::IRBuilder<>& ir = e_.ir();
  const DType type = variant_.kernel().operands[s.operand].type;
  Value const index = Index(s.index), value = ValueOf(s, 0);
  Value allowed = Inside(i, index);
  const auto also = [&](Value condition) {
    allowed = allowed == nullptr ? condition : ir.CreateAnd(allowed, condition);
  };
  if (now_.is_there != nullptr) also(now_.is_there);
  for (const uint32_t indirect : passes_.indirects[s.index]) also(now_.valid[indirect]);
  if (is_team() && !variant_.info().statements[i].is_inner) also(ir.CreateICmpEQ(e_.Lane(), e_.I64(0)));
  const auto store = [&] {
    if (s.kind == StatementKind::kAtomicAdd) return AddAtomically(s, index, value);
    e_.Store(type, args_.buffers[s.operand], index, value, ScalarOf(type));
  };
  if (allowed == nullptr) return store();
  e_.If(allowed, store);
}

void LoopEmission::AddAtomically(const Statement& s, Value index, Value value) {
  const DType type = variant_.kernel().operands[s.operand].type;
  const Scalar scalar = ScalarOf(type);
  Value const buffer = args_.buffers[s.operand];
  if (!e_.gpu()) {
    Value const old = e_.Load(type, buffer, index, scalar);
    Value const sum = IsFloat(scalar) ? e_.ir().CreateFAdd(old, value) : e_.ir().CreateAdd(old, value);
    return e_.Store(type, buffer, index, sum, scalar);
  }
  e_.AtomicAdd(type, buffer, index, value, scalar);
}

Value LoopEmission::Call(uint32_t i) {
  if (segment_) {
    const auto found = std::ranges::find(segments_.comparisons, i, &MaskSegments::Comparison::statement);
    if (found != segments_.comparisons.end()) return e_.ir().getInt1(segments_.ValueIn(*segment_, *found));
  }
  const Statement& s = At(i);
  const loops::FunctionInfo& function = *loops::FindFunction(static_cast<uint64_t>(s.function));
  const FunctionFormula formula(OpOf(s.function), function.arity);
  Lowering::Bindings bindings{};
  for (size_t k = 0; k < static_cast<size_t>(function.arity); ++k)
    bindings[k] = {ValueOf(s, k), ScalarOfValue(s.values[k])};
  const Scalar result = ScalarOfValue(i);
  Lowering lowering(e_, formula.expression, ScalarOf(s.type), bindings);
  absl::StatusOr<Value> value = lowering.LowerAs(formula.root, result);
  if (value.ok()) return *value;
  Fail(value.status());
  return e_.IntegerConstant(result, 0);
}

Value LoopEmission::Random(uint32_t i) {
  const Statement& s = At(i);
  const FunctionFormula formula(OpOf(static_cast<loops::Random>(s.integer)), 2);
  Lowering::Bindings bindings{};
  bindings[0] = {ValueOf(s, 0), Scalar::kI64};
  bindings[1] = {e_.I64(0), Scalar::kI64};
  bindings[static_cast<size_t>(Variable::kIndex)] = {ValueOf(s, 1), Scalar::kI64};
  Lowering lowering(e_, formula.expression, ScalarOf(s.type), bindings);
  absl::StatusOr<Value> value = lowering.LowerAs(formula.root, ScalarOf(s.type));
  if (value.ok()) return *value;
  Fail(value.status());
  return e_.IntegerConstant(ScalarOf(s.type), 0);
}

Value LoopEmission::Bitcast(const Statement& s) {
  Value const bits = e_.ToStorage(s.from, ValueOf(s, 0), ScalarOf(s.from));
  return e_.FromStorage(s.type, e_.ir().CreateBitCast(bits, e_.StorageOf(s.type)), ScalarOf(s.type));
}

// An index outside becomes 0: accesses assume one in the bound.
void LoopEmission::CheckIndirect(uint32_t i) {
  const Statement& s = At(i);
  llvm::IRBuilder<>& ir = e_.ir();
  Value const bound = Index(s.bound), zero = e_.I64(0);
  Value index = e_.Convert(ValueOf(s, 0), ScalarOfValue(s.values[0]), Scalar::kI64);
  Value const given = index;
  if (s.flag) index = ir.CreateSelect(ir.CreateICmpSLT(index, zero), ir.CreateAdd(index, bound), index);
  Value const valid = ir.CreateAnd(ir.CreateICmpSGE(index, zero), ir.CreateICmpSLT(index, bound));
  Report(i, ir.CreateNot(valid), DeviceError::kIndexOutOfRange, given);
  now_.valid[i] = valid;
  Give(i, ir.CreateSelect(valid, index, zero));
}

// By halves: what comes before `low` is less.
Value LoopEmission::Search(uint32_t i) {
  const Statement& s = At(i);
  llvm::IRBuilder<>& ir = e_.ir();
  const DType type = variant_.kernel().operands[s.operand].type;
  const Scalar scalar = ScalarOf(type);
  Value const first = Index(s.index), zero = e_.I64(0), value = ValueOf(s, 0);
  Value count = Index(s.bound);
  if (variant_.call().guarded[i]) {
    Value const elements = args_.elements[s.operand];
    Value const fits =
        ir.CreateAnd(ir.CreateAnd(ir.CreateICmpSGE(first, zero), ir.CreateICmpSGE(count, zero)),
                     ir.CreateAnd(ir.CreateICmpSLE(first, elements),
                                  ir.CreateICmpSLE(count, ir.CreateSub(elements, first))));
    Report(i, ir.CreateNot(fits), DeviceError::kIndexOutOfRange, first);
    count = ir.CreateSelect(fits, count, zero);
  }
  const auto precedes = [&](Value element) -> Value {
    if (IsFloat(scalar)) return s.flag ? ir.CreateFCmpOLE(element, value) : ir.CreateFCmpOLT(element, value);
    if (scalar == Scalar::kU8 || scalar == Scalar::kBool)
      return s.flag ? ir.CreateICmpULE(element, value) : ir.CreateICmpULT(element, value);
    return s.flag ? ir.CreateICmpSLE(element, value) : ir.CreateICmpSLT(element, value);
  };
  const Values found = e_.While(
      {zero, count}, [&](const Values& range) { return ir.CreateICmpSLT(range[0], range[1]); },
      [&](const Values& range) -> Values {
        Value const middle = ir.CreateLShr(ir.CreateAdd(range[0], range[1]), 1);
        Value const before =
            precedes(e_.Load(type, args_.buffers[s.operand], ir.CreateAdd(first, middle), scalar));
        return {ir.CreateSelect(before, ir.CreateAdd(middle, e_.I64(1)), range[0]),
                ir.CreateSelect(before, range[1], middle)};
      });
  return found[0];
}

void LoopEmission::Scan(uint32_t i) {
  const Statement& s = At(i);
  Values taken;
  for (size_t k = 0; k < static_cast<size_t>(loops::InfoOf(s.reduction).takes); ++k)
    taken.push_back(ValueOf(s, k));
  ReductionEmission reduction(e_, s.reduction, ScalarOf(s.type), 0);
  Values& state = scan_states_[i];
  state = reduction.Take(state, taken, {});
  for (size_t k = 0; k < state.size(); ++k) now_.values[i][k] = state[k];
}

// ---- indices

Value LoopEmission::Index(uint32_t at) {
  if (now_.indices[at] != nullptr) return now_.indices[at];
  const IndexNode& node = body_.indices[at];
  llvm::IRBuilder<>& ir = e_.ir();
  const bool exact = variant_.call().is_exact[at];
  const int arity = loops::ArityOf(node.op);
  Value const a = arity > 0 ? Index(node.a) : nullptr;
  Value const b = arity > 1 ? Index(node.b) : nullptr;
  const auto make = [&]() -> Value {
    switch (node.op) {
      case IndexOp::kConstant:
        return e_.I64(node.constant);
      case IndexOp::kIterator:
        return iterators_[node.a];
      case IndexOp::kSize:
        return args_.sizes[node.a];
      case IndexOp::kIndirect:
        return ValueOf(node.a);
      case IndexOp::kAdd:
        return exact ? ir.CreateNSWAdd(a, b) : ir.CreateAdd(a, b);
      case IndexOp::kMul:
        return exact ? ir.CreateNSWMul(a, b) : ir.CreateMul(a, b);
      case IndexOp::kFloorDiv:
      case IndexOp::kMod:
        return Divide(a, b, variant_.call().is_natural[node.a], node.op == IndexOp::kMod);
      case IndexOp::kMin:
        return ir.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a, b);
      case IndexOp::kMax:
        return ir.CreateBinaryIntrinsic(llvm::Intrinsic::smax, a, b);
      case IndexOp::kAbs:
        return ir.CreateBinaryIntrinsic(llvm::Intrinsic::abs, a, ir.getFalse());
    }
    return nullptr;
  };
  return now_.indices[at] = make();
}

// By at least 1, rounded down.
Value LoopEmission::Divide(Value a, Value b, bool is_natural, bool remainder) {
  llvm::IRBuilder<>& ir = e_.ir();
  if (is_natural) return remainder ? ir.CreateURem(a, b) : ir.CreateUDiv(a, b);
  Value const rest = ir.CreateSRem(a, b), negative = ir.CreateICmpSLT(rest, e_.I64(0));
  if (remainder) return ir.CreateSelect(negative, ir.CreateAdd(rest, b), rest);
  return ir.CreateSub(ir.CreateSDiv(a, b), ir.CreateZExt(negative, ir.getInt64Ty()));
}

}  // namespace xpud::kernels
