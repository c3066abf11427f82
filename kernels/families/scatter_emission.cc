#include "kernels/compiler/lowering.h"
#include "kernels/families/scatter.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

namespace {

// Entries of the index whose loads are in flight together (GPU).
constexpr int64_t kUnrolled = 4, kRunUnrolled = 8;

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
