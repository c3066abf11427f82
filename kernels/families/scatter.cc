#include "kernels/families/scatter.h"

#include <algorithm>

#include "kernels/compiler/lowering.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/scatter.h"
#include "proto/ops/families/scatter_add.h"

namespace xpud::kernels {

// ---- planning

namespace {

// Each range goes through the whole index. With few lines there are more ranges, because lanes of a warp wait
// for each other's elements.
constexpr int64_t kManyRanges = 64;
constexpr int64_t kGpuThreads = 128 * 1024;  // enough to fill a device
constexpr int64_t kFewThreads = 16 * 1024;
constexpr int64_t kUnrolled = 4;  // entries of the index whose loads are in flight together (GPU)
constexpr int64_t kRunUnrolled = 8;
constexpr int64_t kLongIndex = 512;  // from here on, sorting the index pays (GPU)
constexpr int64_t kMinColumns = 8;   // fewer neighbouring lines are taken one by one

}  // namespace

// A call, as a row of family kScatter.
struct ScatterPlanner::Scatter {
  const ops::Row& row;
  const Operand &out, &index, &source;
  size_t dim;
  uint64_t* error_word;
  bool any_order = false;
  int64_t padding = -1;
};

// The lines of a call, and what a line has. Operands: out, index, and the source if it is a tensor; elements
// have one before them, which only orders the dimensions.
struct ScatterPlanner::Lines {
  Layout layout;
  size_t first = 0;                  // of these operands
  std::array<int64_t, 3> strides{};  // along the dimension
  int64_t rows = 1, length = 1;
};

namespace {

using Lines = ScatterPlanner::Lines;

Lines LinesOf(const ScatterPlanner::Scatter& scatter) {
  const Operand &index = scatter.index, &source = scatter.source;
  const size_t dim = scatter.dim;
  Operand shape = index, out = scatter.out;
  shape.sizes[dim] = 1;
  out.sizes = shape.sizes;
  Lines lines;
  lines.rows = scatter.out.sizes[dim];
  lines.length = index.sizes[dim];
  lines.layout = Layout::Over(shape);
  lines.layout.AddOperand(out);
  lines.layout.AddOperand(index);
  if (!source.immediate) lines.layout.AddOperand(source);
  lines.strides = {out.strides[dim], index.strides[dim], source.strides[dim]};
  return lines;
}

ScatterKey KeyFor(const ScatterPlanner::Scatter& scatter, const Lines& lines, bool gpu) {
  const Layout& layout = lines.layout;
  ScatterKey key;
  key.row = &scatter.row;
  key.type = scatter.out.dtype;
  key.index = scatter.index.dtype;
  key.immediate = scatter.source.immediate;
  key.source = key.immediate ? key.type : scatter.source.dtype;
  key.rank = layout.rank;
  key.columns = !gpu && layout.AccessOf(0) == Access::kContiguous && layout.inner() >= kMinColumns;
  if (!key.columns) return key;
  key.contiguous = key.immediate || layout.AccessOf(2) == Access::kContiguous;
  key.shared = layout.AccessOf(1) == Access::kBroadcast;
  return key;
}

struct Cut {
  int64_t pieces = 1, piece_slice = 1, column_slice = 1, ranges = 1, row_slice = 1;
};

Cut GpuCut(const Lines& lines) {
  Cut cut;
  cut.pieces = lines.layout.numel();
  const int64_t rows = std::max<int64_t>(lines.rows, 1);
  const int64_t wanted = std::max(std::min(kGpuThreads / cut.pieces, kManyRanges), kFewThreads / cut.pieces);
  cut.ranges = std::clamp<int64_t>(wanted, 1, rows);
  cut.row_slice = CeilDiv(rows, cut.ranges);
  cut.ranges = CeilDiv(rows, cut.row_slice);
  return cut;
}

// Cuts columns first. If there are few columns, cuts ranges too, as long as reading the index stays cheap
// compared with the rest.
Cut HostCut(const ScatterKey& key, const Lines& lines) {
  Cut cut;
  cut.row_slice = std::max<int64_t>(lines.rows, 1);
  const auto element = static_cast<float>(ops::SizeOf(key.type));
  const auto length = static_cast<float>(lines.length);
  if (!key.columns) {
    cut.pieces = lines.layout.numel();
    cut.piece_slice = SliceOf(cut.pieces, 1.5f * length, 1);
    return cut;
  }
  const float nanoseconds = key.shared ? 2.0f * element / kBytesPerNanosecond + 0.02f : 1.0f;
  const int64_t inner = lines.layout.inner();
  const int64_t wanted = std::clamp<int64_t>(
      static_cast<int64_t>(length * static_cast<float>(inner) * nanoseconds / kSliceNanoseconds), 1, 8);
  const auto line = static_cast<int64_t>(64 / ops::SizeOf(key.type));
  cut.column_slice = std::min(inner, std::max(CeilDiv(CeilDiv(inner, wanted), line), int64_t{4}) * line);
  const int64_t slices = CeilDiv(inner, cut.column_slice);
  const int64_t most = key.shared ? std::min(lines.rows, std::max<int64_t>(cut.column_slice / 16, 1)) : 1;
  cut.ranges = std::clamp<int64_t>(wanted / slices, 1, std::max<int64_t>(most, 1));
  cut.row_slice = CeilDiv(cut.row_slice, cut.ranges);
  cut.ranges = CeilDiv(std::max<int64_t>(lines.rows, 1), cut.row_slice);
  cut.pieces = lines.layout.numel() / inner * slices;
  cut.piece_slice = SliceOf(cut.pieces, length * static_cast<float>(cut.column_slice) * nanoseconds, 1);
  return cut;
}

// The elements of the index as lines of one element each.
Lines ElementsOf(const ScatterPlanner::Scatter& scatter) {
  const Operand &index = scatter.index, &source = scatter.source;
  const size_t dim = scatter.dim;
  Operand out = scatter.out;
  Lines lines;
  lines.rows = out.sizes[dim];
  lines.strides = {out.strides[dim], 0, 0};
  out.sizes = index.sizes;
  lines.layout = Layout::Over(index);
  lines.layout.AddOperand(out);  // neighbours in out are neighbours in the order, whatever is indexed
  lines.first = 1;
  out.strides[dim] = 0;
  lines.layout.AddOperand(out);
  lines.layout.AddOperand(index);
  if (!source.immediate) lines.layout.AddOperand(source);
  return lines;
}

// Returns true if atomic operations give the same result in any order.
bool OrderIsIrrelevant(const ops::Row& row, ops::DType type) {
  return row.formula.starts_with("max") || row.formula.starts_with("min") ||
         (row.formula != "b" && !ops::IsFloating(type));
}

bool IsAtomic(ops::DType type) { return ops::SizeOf(type) >= 4; }

// Cuts the innermost dimension into blocks, if a lane can add them at once.
bool TakeBlocks(const ScatterPlanner::Scatter& scatter, Lines& lines) {
  constexpr int64_t kBlock = ScatterKey::kBlock;
  const Operand &out = scatter.out, &source = scatter.source;
  Layout& layout = lines.layout;
  const auto last = static_cast<size_t>(layout.rank - 1);
  const auto is_aligned = [&](const Operand& operand) {
    return reinterpret_cast<uintptr_t>(operand.data) % (kBlock * sizeof(float)) == 0;
  };
  if (scatter.row.formula != "a + b" || out.dtype != ops::DType::kFloat32 || source.dtype != out.dtype ||
      source.immediate || !is_aligned(out) || !is_aligned(source))
    return false;
  auto &to = layout.strides[1], &index = layout.strides[2], &from = layout.strides[3];
  if (layout.sizes[last] % kBlock != 0 || to[last] != 1 || index[last] != 0 || from[last] != 1 ||
      lines.strides[0] % kBlock != 0)
    return false;
  for (size_t d = 0; d < last; ++d)
    if (to[d] % kBlock != 0 || from[d] % kBlock != 0) return false;
  layout.sizes[last] /= kBlock;
  to[last] = from[last] = kBlock;
  return true;
}

// Returns true if all lines have the same index.
bool SharesIndex(const Operand& index, size_t dim) {
  for (size_t d = 0; d < static_cast<size_t>(index.rank); ++d)
    if (d != dim && index.sizes[d] > 1 && index.strides[d] != 0) return false;
  return true;
}

ScatterArguments<Planned> ArgumentsFor(const ScatterPlanner::Scatter& scatter, const Lines& lines,
                                       const Cut& cut) {
  ScatterArguments<Planned> arguments{};
  arguments.out = scatter.out.data;
  arguments.index = scatter.index.data;
  arguments.source = scatter.source.data;
  arguments.error_word = scatter.error_word;
  arguments.value = &scatter.source.number;
  arguments.out_stride = lines.strides[0];
  arguments.index_stride = lines.strides[1];
  arguments.source_stride = lines.strides[2];
  arguments.rows = lines.rows;
  arguments.length = lines.length;
  arguments.padding = scatter.padding;
  arguments.pieces = cut.pieces;
  arguments.piece_slice = cut.piece_slice;
  arguments.column_slice = cut.column_slice;
  arguments.row_slice = cut.row_slice;
  SetSpace(lines.layout, arguments.lines, lines.first);
  return arguments;
}

void LaunchLanes(const Kernel* kernel, const ScatterKey& key, int64_t lanes,
                 ScatterArguments<Planned>& arguments, LaunchList& launches) {
  Launch& launch = launches.Add();
  launch.Reset(kernel, CeilDiv(lanes, kGpuLanes));
  launch.group_size = {kGpuLanes, 1, 1};
  PushArguments(key, arguments, launch);
}

// The row of family kScatter that has the same formula.
const ops::Row& InOrder(const ops::Row& row) {
  const auto found = std::ranges::find_if(ops::kRows, [&](const ops::Row& other) {
    return other.family == ops::Family::kScatter && other.formula == row.formula;
  });
  return *found;
}

}  // namespace

absl::StatusOr<Readiness> ScatterPlanner::Plan(const OpCall& call, Workspace workspace,
                                               LaunchList& launches) {
  static const ops::Row& add = ops::RowOf("xpud::scatter_add");
  if (call.row->family == ops::Family::kScatterAdd) {  // of rows: one index serves all columns
    const auto rows = ops::Read<ops::ScatterAddCall>(call);
    Operand index = *rows.index;
    index.rank = 2;
    index.sizes[1] = rows.source->sizes[1];
    index.strides[1] = 0;
    return PlanScatter({.row = add,
                        .out = *rows.out,
                        .index = index,
                        .source = *rows.source,
                        .dim = 0,
                        .error_word = call.error_word,
                        .padding = rows.padding_idx},
                       workspace, launches);
  }
  const auto scatter = ops::Read<ops::ScatterCall>(call);
  const bool any_order = call.row->family == ops::Family::kScatterAnyOrder;
  return PlanScatter({.row = any_order ? InOrder(*call.row) : *call.row,
                      .out = *scatter.out,
                      .index = *scatter.index,
                      .source = *scatter.source,
                      .dim = static_cast<size_t>(scatter.dim),
                      .error_word = call.error_word,
                      .any_order = any_order},
                     workspace, launches);
}

absl::StatusOr<Readiness> ScatterPlanner::PlanScatter(const Scatter& scatter, Workspace workspace,
                                                      LaunchList& launches) {
  const ops::DType type = scatter.out.dtype;
  const bool gpu = cache_.target() != Target::kHost;
  const bool by_element = gpu && (scatter.any_order || OrderIsIrrelevant(scatter.row, type)) &&
                          (scatter.row.formula == "b" || IsAtomic(type));
  Lines lines = by_element ? ElementsOf(scatter) : LinesOf(scatter);
  if (lines.layout.numel() == 0 || lines.length == 0) return Readiness::kReady;
  lines.layout.Collapse(/*may_permute=*/true);
  ScatterKey key = KeyFor(scatter, lines, gpu);
  if (gpu && !by_element && lines.length >= kLongIndex && lines.rows < ScatterKey::kNoRow &&
      SharesIndex(scatter.index, scatter.dim))
    return PlanRuns(scatter, lines, key, workspace, launches);
  if (by_element) {
    key.by = ScatterBy::kElement;
    key.blocks = cache_.code_target().AddsVectors() && TakeBlocks(scatter, lines);
  }
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key));
  if (kernel == nullptr) return Readiness::kCompiling;

  const Cut cut = by_element ? Cut{.pieces = lines.layout.numel(), .row_slice = lines.rows}
                  : gpu      ? GpuCut(lines)
                             : HostCut(key, lines);
  ScatterArguments<Planned> arguments = ArgumentsFor(scatter, lines, cut);
  if (gpu) {
    LaunchLanes(kernel, key, cut.ranges * cut.pieces, arguments, launches);
    return Readiness::kReady;
  }
  Launch& launch = launches.Add();
  launch.Reset(kernel, CeilDiv(cut.pieces, cut.piece_slice), cut.ranges);
  PushArguments(key, arguments, launch);
  return Readiness::kReady;
}

absl::StatusOr<Readiness> ScatterPlanner::PlanRuns(const Scatter& scatter, const Lines& lines, ScatterKey key,
                                                   Workspace workspace, LaunchList& launches) {
  ScatterKey run_key = key;
  run_key.by = ScatterBy::kRun;
  // One kernel for all types.
  key = {.by = ScatterBy::kPrepare, .row = key.row, .index = key.index};
  ASSIGN_OR_RETURN(const Kernel* const prepare, cache_.Find(skeleton_, key));
  ASSIGN_OR_RETURN(const Kernel* const runs, cache_.Find(skeleton_, run_key));

  const auto length = static_cast<size_t>(lines.length);
  ASSIGN_OR_RETURN(void* const unsorted, workspace(length * sizeof(int32_t)));
  ASSIGN_OR_RETURN(void* const sorted, workspace(length * sizeof(int32_t)));
  ASSIGN_OR_RETURN(void* const order, workspace(length * sizeof(int64_t)));
  const auto vector = [&](void* data, ops::DType type) {
    Operand operand;
    operand.data = data;
    operand.dtype = type;
    operand.rank = 1;
    operand.sizes[0] = lines.length;
    operand.strides[0] = 1;
    return operand;
  };
  const std::array outputs = {vector(sorted, ops::DType::kInt32), vector(order, ops::DType::kInt64)};
  const std::array inputs = {vector(unsorted, ops::DType::kInt32)};
  const std::array attributes = {ops::Number::Integer(0), ops::Number::Integer(0)};
  static const ops::Row& sort_row = ops::RowOf("sort");
  const OpCall sort = {.row = &sort_row,
                       .compute = ops::DType::kInt32,
                       .outputs = outputs,
                       .inputs = inputs,
                       .attributes = attributes,
                       .error_word = scatter.error_word};

  ScatterArguments<Planned> arguments = ArgumentsFor(scatter, lines, {.pieces = lines.layout.numel()});
  arguments.sorted = unsorted;
  if (prepare != nullptr) LaunchLanes(prepare, key, lines.length, arguments, launches);
  ASSIGN_OR_RETURN(const Readiness sorts, sort_.Plan(sort, workspace, launches));
  if (prepare == nullptr || runs == nullptr || sorts == Readiness::kCompiling) return Readiness::kCompiling;
  arguments.sorted = sorted;
  arguments.order = order;
  LaunchLanes(runs, run_key, lines.length * lines.layout.numel(), arguments, launches);
  return Readiness::kReady;
}

// ---- emission

namespace {

using Value = llvm::Value*;
using Values = Emitter::Values;

class ScatterEmission {
 public:
  ScatterEmission(const ScatterKey& key, const ScatterArguments<Emitted>& arguments,
                  const MapFormula& formula, Emitter& emitter)
      : key_(key), args_(arguments), formula_(formula), e_(emitter), scalar_(ScalarOf(key.type)) {}

  absl::Status Run() {
    if (e_.gpu()) {
      Value const thread = e_.Add(e_.Mul(e_.Group(0), e_.Lanes()), e_.Lane());
      if (key_.by != ScatterBy::kLine) {
        Value const lanes = key_.by == ScatterBy::kElement   ? args_.pieces
                            : key_.by == ScatterBy::kPrepare ? args_.length
                                                             : e_.Mul(args_.length, args_.pieces);
        first_ = e_.I64(0);
        beyond_ = args_.rows;
        reports_ = e_.ir().getTrue();
        e_.If(e_.ir().CreateICmpSLT(thread, lanes), [&] {
          if (key_.by == ScatterBy::kElement) EmitElement(thread);
          if (key_.by == ScatterBy::kPrepare) EmitPrepare(thread);
          if (key_.by == ScatterBy::kRun) EmitRun(thread);
        });
        return status_;
      }
      SetRange(e_.ir().CreateUDiv(thread, args_.pieces));
      Value const has_range = e_.ir().CreateOr(reports_, e_.ir().CreateICmpSLT(first_, args_.rows));
      e_.If(has_range, [&] { EmitLine(Begin(e_.ir().CreateURem(thread, args_.pieces), key_.rank)); });
      return status_;
    }
    SetRange(e_.Group(1));
    Value const begin = e_.Mul(e_.Group(0), args_.piece_slice);
    Value const end = e_.Min(e_.Add(begin, args_.piece_slice), args_.pieces);
    e_.Loop(begin, end, e_.I64(1), [&](Value piece) {
      if (key_.columns) {
        EmitColumns(piece);
      } else {
        EmitLine(Begin(piece, key_.rank));
      }
    });
    return status_;
  }

 private:
  // The positions of out that this lane owns: range number `range`.
  void SetRange(Value range) {
    first_ = e_.Mul(range, args_.row_slice);
    beyond_ = e_.Min(e_.Add(first_, args_.row_slice), args_.rows);
    reports_ = e_.ir().CreateICmpEQ(range, e_.I64(0));
  }

  size_t operands() const { return key_.immediate ? 2 : 3; }
  // Returns where line `line` of the first `dims` dimensions begins in out, index and source.
  Values Begin(Value line, int dims) {
    Values begin = OffsetsOf(e_, args_.lines, line, dims, operands());
    if (key_.immediate) begin.push_back(e_.I64(0));
    return begin;
  }
  // Returns the source's offset of element `n` of a line.
  Value SourceAt(Value begin, Value n) {
    return key_.immediate ? begin : e_.Add(begin, e_.Mul(n, args_.source_stride));
  }

  // Not invariant: a client may name one tensor as out and index, and what is checked must be what is used.
  Value LoadIndex(Value at) { return e_.Load(key_.index, args_.index, at, Scalar::kI64); }
  // Calls then(offset) with the offset in out of the element at position `row`, if this lane owns it.
  void WithTarget(Value begin, Value row, const std::function<void(Value)>& then) {
    Value const inside = e_.IsIndex(row, args_.rows);
    e_.ReportIndex(args_.error_word, e_.ir().CreateAnd(reports_, e_.ir().CreateNot(inside)), row);
    Value const heeded = e_.ir().CreateAnd(inside, e_.ir().CreateICmpNE(row, args_.padding));
    Value const ours =
        e_.ir().CreateAnd(e_.ir().CreateICmpSGE(row, first_), e_.ir().CreateICmpSLT(row, beyond_));
    e_.If(e_.ir().CreateAnd(heeded, ours), [&] { then(e_.Add(begin, e_.Mul(row, args_.out_stride))); });
  }

  void EmitLine(const Values& begin) {
    const auto entries = [&](const Values& numbers, const Values&) -> Values {
      Values rows;
      for (Value n : numbers) rows.push_back(LoadIndex(e_.Add(begin[1], e_.Mul(n, args_.index_stride))));
      for (size_t i = 0; i < rows.size(); ++i)
        WithTarget(begin[0], rows[i], [&](Value out) { Combine(out, SourceAt(begin[2], numbers[i])); });
      return {};
    };
    if (e_.gpu()) {
      e_.LoopUnrolled(e_.I64(0), args_.length, 1, 1, kUnrolled, {}, entries);
    } else {
      e_.Loop(e_.I64(0), args_.length, e_.I64(1), [&](Value n) { entries({n}, {}); });
    }
  }

  void EmitElement(Value element) {
    const Values begin = Begin(element, key_.rank);
    WithTarget(begin[0], LoadIndex(begin[1]), [&](Value out) {
      if (!Accumulates()) {
        Combine(out, begin[2]);
        return;
      }
      if (key_.blocks) {
        const Values sources =
            e_.LoadBlock(key_.source, args_.source, begin[2], scalar_, static_cast<int>(ScatterKey::kBlock));
        return e_.AtomicAddFloats(args_.out, out, sources);
      }
      Value const source = Source(begin[2]);
      if (key_.row->formula == "a + b" && key_.type != ops::DType::kBool) {
        e_.AtomicAdd(key_.type, args_.out, out, source, scalar_);
      } else {
        e_.Atomically(key_.type, args_.out, out, scalar_, [&](Value old) { return Combined(old, source); });
      }
    });
  }

  // Entry `n` of the index as a number that is sorted.
  void EmitPrepare(Value n) {
    Value const row = LoadIndex(e_.Mul(n, args_.index_stride)), inside = e_.IsIndex(row, args_.rows);
    e_.ReportIndex(args_.error_word, e_.ir().CreateNot(inside), row);
    Value const heeded = e_.ir().CreateAnd(inside, e_.ir().CreateICmpNE(row, args_.padding));
    e_.Store(ops::DType::kInt32, args_.sorted, n,
             e_.ir().CreateSelect(heeded, row, e_.I64(ScatterKey::kNoRow)), Scalar::kI64);
  }

  // Goes through the run that begins at entry lane / pieces, if one does, in line lane % pieces.
  void EmitRun(Value lane) {
    llvm::IRBuilder<>& ir = e_.ir();
    Value const start = ir.CreateUDiv(lane, args_.pieces), one = e_.I64(1);
    const auto sorted = [&](Value n) { return e_.Load(ops::DType::kInt32, args_.sorted, n, Scalar::kI64); };
    const auto order = [&](Value n) { return e_.Load(ops::DType::kInt64, args_.order, n, Scalar::kI64); };
    Value const row = sorted(start), is_first = ir.CreateICmpEQ(start, e_.I64(0));
    Value const before = sorted(ir.CreateSelect(is_first, start, ir.CreateSub(start, one)));
    Value const begins = ir.CreateOr(is_first, ir.CreateICmpNE(row, before));
    // Other lanes read these numbers at other times, so they are checked here, too.
    e_.If(ir.CreateAnd(begins, e_.IsIndex(row, args_.rows)), [&] {
      const Values begin = Begin(ir.CreateURem(lane, args_.pieces), key_.rank);
      Value const out = e_.Add(begin[0], e_.Mul(row, args_.out_stride));
      const auto goes_on = [&](Value n, int64_t count) {
        Value const last = e_.Add(n, e_.I64(count - 1)), there = ir.CreateICmpSLT(last, args_.length);
        return ir.CreateAnd(there, ir.CreateICmpEQ(sorted(ir.CreateSelect(there, last, start)), row));
      };
      const auto take = [&](const Values& carried, int64_t count) -> Values {
        Values sources;
        for (int64_t i = 0; i < count; ++i)
          sources.push_back(Source(SourceAt(begin[2], order(e_.Add(carried[0], e_.I64(i))))));
        Value sum = carried[1];
        for (Value const source : sources) sum = Rounded(Combined(sum, source));
        return {e_.Add(carried[0], e_.I64(count)), sum};
      };
      Values carried = {start, Accumulates() ? e_.Load(key_.type, args_.out, out, scalar_)
                                             : llvm::Constant::getNullValue(e_.TypeOf(scalar_))};
      for (const int64_t count : {kRunUnrolled, int64_t{1}})
        carried = e_.While(
            carried, [&](const Values& now) { return goes_on(now[0], count); },
            [&](const Values& now) { return take(now, count); });
      e_.Store(key_.type, args_.out, out, carried[1], scalar_);
    });
  }

  // Host: a slice of neighbouring lines.
  void EmitColumns(Value piece) {
    const auto last = static_cast<size_t>(key_.rank - 1);
    Value const inner = args_.lines.sizes[last];
    Value const slices = e_.CeilDiv(inner, args_.column_slice);
    const Values begin = Begin(e_.ir().CreateUDiv(piece, slices), key_.rank - 1);
    Value const first = e_.Mul(e_.ir().CreateURem(piece, slices), args_.column_slice);
    Value const beyond = e_.Min(e_.Add(first, args_.column_slice), inner);
    const auto column = [&](size_t operand, Value c) -> Value {
      return e_.Mul(c, args_.lines.strides[operand][last]);
    };
    const auto source_column = [&](Value c) -> Value {
      if (key_.immediate) return e_.I64(0);
      return key_.contiguous ? c : column(2, c);
    };
    e_.Loop(e_.I64(0), args_.length, e_.I64(1), [&](Value n) {
      Value const index = e_.Add(begin[1], e_.Mul(n, args_.index_stride)), source = SourceAt(begin[2], n);
      if (key_.shared) {
        WithTarget(begin[0], LoadIndex(index), [&](Value out) {
          e_.Loop(
              first, beyond, e_.I64(1),
              [&](Value c) { Combine(e_.Add(out, c), e_.Add(source, source_column(c))); },
              Emitter::LoopKind::kParallel);
        });
        return;
      }
      e_.Loop(first, beyond, e_.I64(1), [&](Value c) {
        WithTarget(e_.Add(begin[0], c), LoadIndex(e_.Add(index, column(1, c))),
                   [&](Value out) { Combine(out, e_.Add(source, source_column(c))); });
      });
    });
  }

  Value Source(Value at) {
    if (!key_.immediate) return e_.Load(key_.source, args_.source, at, scalar_);
    return e_.Convert(args_.value, IsFloat(scalar_) ? scalar_ : Scalar::kI64, scalar_);
  }
  bool Accumulates() const { return formula_.expression.Uses(Variable::kA); }
  // Returns the formula of an element of out (if it accumulates) and one of the source, as scalar_.
  Value Combined(Value old, Value source) {
    Lowering::Bindings bindings{};
    bindings[static_cast<size_t>(Variable::kB)] = {source, scalar_};
    if (Accumulates()) bindings[static_cast<size_t>(Variable::kA)] = {old, scalar_};
    Lowering lowering(e_, formula_.expression, scalar_, bindings);
    const absl::StatusOr<Typed> result = lowering.Lower(formula_.outputs[0]);
    if (result.ok()) return e_.Convert(result->value, result->scalar, scalar_);
    status_ = result.status();
    return source;
  }
  // Returns the value as it would be read after storing it.
  Value Rounded(Value value) {
    return e_.FromStorage(key_.type, e_.ToStorage(key_.type, value, scalar_), scalar_);
  }
  // Sets element `out` to the formula of it and of the source's element `source`.
  void Combine(Value out, Value source) {
    Value const old = Accumulates() ? e_.Load(key_.type, args_.out, out, scalar_) : nullptr;
    e_.Store(key_.type, args_.out, out, Combined(old, Source(source)), scalar_);
  }

  const ScatterKey& key_;
  const ScatterArguments<Emitted>& args_;
  const MapFormula& formula_;
  Emitter& e_;
  const Scalar scalar_;
  Value first_ = nullptr, beyond_ = nullptr;  // positions of out
  Value reports_ = nullptr;                   // i1: this lane reports indices out of range
  absl::Status status_;
};

}  // namespace

std::string ScatterSkeleton::Name(const ScatterKey& key) const {
  static constexpr std::string_view kPrefixes[] = {"scatter_", "scatter_atomically_", "scatter_prepare_",
                                                   "scatter_run_"};
  return NameWith(kPrefixes[static_cast<size_t>(key.by)], *key.row);
}

absl::Status ScatterSkeleton::EmitBody(const ScatterKey& key, const ScatterArguments<Emitted>& arguments,
                                       Emitter& e) const {
  ASSIGN_OR_RETURN(const MapFormula formula, ParseMap(key.row->formula));
  return ScatterEmission(key, arguments, formula, e).Run();
}

}  // namespace xpud::kernels
