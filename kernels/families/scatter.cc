#include "kernels/families/scatter.h"

#include <algorithm>

#include "kernels/compiler/lowering.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

// ---- planning

namespace {

// Each range goes through the whole index. With few lines there are more ranges, because lanes of a warp wait
// for each other's elements.
constexpr int64_t kManyRanges = 64;
constexpr int64_t kGpuThreads = 128 * 1024;  // enough to fill a device
constexpr int64_t kFewThreads = 16 * 1024;
constexpr int64_t kUnrolled = 4;    // entries of the index whose loads are in flight together (GPU)
constexpr int64_t kMinColumns = 8;  // fewer neighbouring lines are taken one by one

// The lines of a call, and what a line has. Operands: out, index, and the source if it is a tensor.
struct Lines {
  Layout layout;
  std::array<int64_t, 3> strides{};  // along the dimension
  int64_t rows = 1, length = 1;
};

Lines LinesOf(const OpCall& call, size_t dim) {
  const Operand &index = call.inputs[0], &source = call.inputs[1];
  Operand shape = index, out = call.outputs[0];
  shape.sizes[dim] = 1;
  out.sizes = shape.sizes;
  Lines lines;
  lines.rows = call.outputs[0].sizes[dim];
  lines.length = index.sizes[dim];
  lines.layout = Layout::Over(shape);
  lines.layout.AddOperand(out);
  lines.layout.AddOperand(index);
  if (!source.immediate) lines.layout.AddOperand(source);
  lines.strides = {out.strides[dim], index.strides[dim], source.strides[dim]};
  return lines;
}

ScatterKey KeyFor(const ops::Row& row, const OpCall& call, const Lines& lines, bool gpu) {
  const Layout& layout = lines.layout;
  ScatterKey key;
  key.row = &row;
  key.type = call.outputs[0].dtype;
  key.index = call.inputs[0].dtype;
  key.immediate = call.inputs[1].immediate;
  key.source = key.immediate ? key.type : call.inputs[1].dtype;
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
      static_cast<int64_t>(length * static_cast<float>(inner) * nanoseconds / kSliceNanoseconds), 1, 16);
  const auto line = static_cast<int64_t>(64 / ops::SizeOf(key.type));
  cut.column_slice = std::min(inner, std::max(CeilDiv(CeilDiv(inner, wanted), line), int64_t{4}) * line);
  const int64_t slices = CeilDiv(inner, cut.column_slice);
  const int64_t most = key.shared ? std::min(lines.rows, std::max<int64_t>(inner / 4, 1)) : 1;
  cut.ranges = std::clamp<int64_t>(wanted / slices, 1, std::max<int64_t>(most, 1));
  cut.row_slice = CeilDiv(cut.row_slice, cut.ranges);
  cut.ranges = CeilDiv(std::max<int64_t>(lines.rows, 1), cut.row_slice);
  cut.pieces = lines.layout.numel() / inner * slices;
  cut.piece_slice = SliceOf(cut.pieces, length * static_cast<float>(cut.column_slice) * nanoseconds, 1);
  return cut;
}

// A row addition (the gradient of an embedding) as a call of the scatter family.
struct RowAddition {
  explicit RowAddition(const OpCall& of) : inputs{of.inputs[0], of.inputs[1]}, call(of) {
    Operand& index = inputs[0];
    index.rank = 2;
    index.sizes[1] = inputs[1].sizes[1];
    index.strides[1] = 0;
    call.inputs = inputs;
    call.attributes = {&dim, 1};
  }
  RowAddition(const RowAddition&) = delete;
  RowAddition& operator=(const RowAddition&) = delete;

  std::array<Operand, 2> inputs;
  ops::Number dim = ops::Number::Integer(0);
  OpCall call;
};

}  // namespace

absl::StatusOr<Readiness> ScatterPlanner::Plan(const OpCall& call, Workspace, LaunchList& launches) {
  static const ops::Row& add = ops::RowOf("xpud::scatter_add");
  if (call.row->family == ops::Family::kScatter) return PlanScatter(*call.row, call, -1, launches);
  const RowAddition addition(call);
  return PlanScatter(add, addition.call, call.attributes[0].AsInteger(), launches);
}

absl::StatusOr<Readiness> ScatterPlanner::PlanScatter(const ops::Row& row, const OpCall& call,
                                                      int64_t padding, LaunchList& launches) {
  Lines lines = LinesOf(call, static_cast<size_t>(call.attributes[0].AsInteger()));
  if (lines.layout.numel() == 0 || lines.length == 0) return Readiness::kReady;
  lines.layout.Collapse(/*may_permute=*/true);
  const bool gpu = cache_.target() != Target::kHost;
  const ScatterKey key = KeyFor(row, call, lines, gpu);
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key));
  if (kernel == nullptr) return Readiness::kCompiling;

  const Cut cut = gpu ? GpuCut(lines) : HostCut(key, lines);
  Launch& launch = launches.Add();
  if (gpu) {
    launch.Reset(kernel, static_cast<uint32_t>(CeilDiv(cut.ranges * cut.pieces, kGpuLanes)));
    launch.group_size = {kGpuLanes, 1, 1};
  } else {
    launch.Reset(kernel, static_cast<uint32_t>(CeilDiv(cut.pieces, cut.piece_slice)),
                 static_cast<uint32_t>(cut.ranges));
  }
  ScatterArguments<Planned> arguments{.out = call.outputs[0].data,
                                      .index = call.inputs[0].data,
                                      .source = call.inputs[1].data,
                                      .error_word = call.error_word,
                                      .value = &call.inputs[1].number,
                                      .lines = {},
                                      .out_stride = lines.strides[0],
                                      .index_stride = lines.strides[1],
                                      .source_stride = lines.strides[2],
                                      .rows = lines.rows,
                                      .length = lines.length,
                                      .padding = padding,
                                      .pieces = cut.pieces,
                                      .piece_slice = cut.piece_slice,
                                      .column_slice = cut.column_slice,
                                      .row_slice = cut.row_slice};
  SetSpace(lines.layout, arguments.lines);
  PushArguments(key, arguments, launch);
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
  // Sets element `out` to the formula of it and of the source's element `source`.
  void Combine(Value out, Value source) {
    Lowering::Bindings bindings{};
    bindings[static_cast<size_t>(Variable::kB)] = {Source(source), scalar_};
    if (formula_.expression.Uses(Variable::kA))
      bindings[static_cast<size_t>(Variable::kA)] = {e_.Load(key_.type, args_.out, out, scalar_), scalar_};
    Lowering lowering(e_, formula_.expression, scalar_, bindings);
    const absl::StatusOr<Typed> result = lowering.Lower(formula_.outputs[0]);
    if (result.ok()) {
      e_.Store(key_.type, args_.out, out, result->value, result->scalar);
    } else {
      status_ = result.status();
    }
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

absl::Status ScatterSkeleton::EmitBody(const ScatterKey& key, const ScatterArguments<Emitted>& arguments,
                                       Emitter& e) const {
  ASSIGN_OR_RETURN(const MapFormula formula, ParseMap(key.row->formula));
  return ScatterEmission(key, arguments, formula, e).Run();
}

}  // namespace xpud::kernels
