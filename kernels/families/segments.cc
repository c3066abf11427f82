#include "kernels/families/segments.h"

#include <algorithm>

#include "kernels/families/monoid_emission.h"
#include "kernels/families/planners.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/segments.h"

namespace xpud::kernels {

// ---- planning

namespace {

SegmentsKey KeyFor(const OpCall& call) {
  const auto segments = ops::Read<ops::SegmentsCall>(call);
  const Operand &out = *segments.out, &data = *segments.data, &index = *segments.index;
  SegmentsKey key;
  key.row = call.row;
  key.data = data.dtype;
  key.begins = segments.begins->dtype;
  key.ends = segments.ends->dtype;
  key.indexed = index.present;
  if (key.indexed) key.index = index.dtype;
  key.weighted = segments.weights->present;
  key.contiguous = out.strides[1] == 1 && data.strides[1] == 1;
  return key;
}

SegmentsArguments<Planned> ArgumentsFor(const OpCall& call, const SegmentsKey& key) {
  const auto segments = ops::Read<ops::SegmentsCall>(call);
  const Operand &out = *segments.out, &data = *segments.data, &begins = *segments.begins,
                &ends = *segments.ends, &index = *segments.index, &weights = *segments.weights;
  return {.out = out.data,
          .data = data.data,
          .begins = begins.data,
          .ends = ends.data,
          .index = index.data,
          .weights = weights.data,
          .error_word = call.error_word,
          .rows = data.sizes[0],
          .columns = data.sizes[1],
          .segments = out.sizes[0],
          .positions = key.indexed ? index.sizes[0] : data.sizes[0],
          .padding = segments.padding_idx,
          .segment_slice = 1,
          .out_row = out.strides[0],
          .out_column = out.strides[1],
          .data_row = data.strides[0],
          .data_column = data.strides[1],
          .begins_stride = begins.strides[0],
          .ends_stride = ends.strides[0],
          .index_stride = index.strides[0],
          .weights_stride = weights.strides[0]};
}

// About how many nanoseconds a segment of average length takes on the host.
float NanosecondsOf(const SegmentsKey& key, const SegmentsArguments<Planned>& arguments) {
  const float element =
      key.contiguous && arguments.columns >= 16 ? 0.05f * static_cast<float>(ops::SizeOf(key.data)) : 1.0f;
  const float elements = static_cast<float>(arguments.positions) / static_cast<float>(arguments.segments) *
                         static_cast<float>(arguments.columns);
  return 5.0f + elements * element;
}

}  // namespace

absl::StatusOr<Readiness> SegmentsPlanner::Plan(const OpCall& call, Workspace, LaunchList& launches) {
  const SegmentsKey key = KeyFor(call);
  SegmentsArguments<Planned> arguments = ArgumentsFor(call, key);
  // Without rows of data nothing is read, not even a wrong index.
  if (arguments.segments == 0 || arguments.columns == 0 || arguments.rows == 0) return Readiness::kReady;
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key));
  if (kernel == nullptr) return Readiness::kCompiling;
  Launch& launch = launches.Add();
  if (cache_.target() == Target::kHost) {
    arguments.segment_slice = SliceOf(arguments.segments, NanosecondsOf(key, arguments), 1);
    launch.Reset(kernel, CeilDiv(arguments.segments, arguments.segment_slice));
  } else {
    launch.Reset(kernel, CeilDiv(arguments.segments * arguments.columns, kGpuLanes));
    launch.group_size = {kGpuLanes, 1, 1};
  }
  PushArguments(key, arguments, launch);
  return Readiness::kReady;
}

// ---- emission

namespace {

using Value = llvm::Value*;
using Values = Emitter::Values;
using State = MonoidEmission::State;

class SegmentsEmission {
 public:
  SegmentsEmission(const SegmentsKey& key, const SegmentsArguments<Emitted>& arguments,
                   const ReduceFormula& formula, Emitter& emitter)
      : key_(key),
        args_(arguments),
        e_(emitter),
        accumulate_(AccumulateOf(key.data)),
        monoid_(emitter, formula, accumulate_) {}

  absl::Status Run() {
    if (e_.gpu()) {
      EmitLane();
    } else {
      Value const begin = e_.Mul(e_.Group(0), args_.segment_slice);
      Value const end = e_.Min(e_.Add(begin, args_.segment_slice), args_.segments);
      e_.Loop(begin, end, e_.I64(1), [&](Value segment) { EmitSegment(segment); });
    }
    return monoid_.status();
  }

 private:
  struct Range {
    Value begin, end;  // both 0 where one of them is out of range
  };

  // Returns a segment's positions. `reports`: whether this lane reports a number out of range.
  Range RangeOf(Value segment, Value reports) {
    Value const limit = e_.Add(args_.positions, e_.I64(1));
    Value const begin =
        e_.Load(key_.begins, args_.begins, e_.Mul(segment, args_.begins_stride), Scalar::kI64);
    Value const end = e_.Load(key_.ends, args_.ends, e_.Mul(segment, args_.ends_stride), Scalar::kI64);
    for (Value const bound : {begin, end}) {
      Value const wrong = e_.ir().CreateNot(e_.IsIndex(bound, limit));
      e_.ReportIndex(args_.error_word, e_.ir().CreateAnd(reports, wrong), bound);
    }
    Value const both = e_.ir().CreateAnd(e_.IsIndex(begin, limit), e_.IsIndex(end, limit));
    return {e_.ir().CreateSelect(both, begin, e_.I64(0)), e_.ir().CreateSelect(both, end, e_.I64(0))};
  }

  void EmitLane() {
    Value const thread = e_.Add(e_.Mul(e_.Group(0), e_.Lanes()), e_.Lane());
    Value const segment = e_.ir().CreateUDiv(thread, args_.columns);
    Value const column = e_.ir().CreateURem(thread, args_.columns);
    e_.If(e_.ir().CreateICmpSLT(segment, args_.segments), [&] {
      Value const leads = e_.ir().CreateICmpEQ(column, e_.I64(0));
      EmitColumns(segment, RangeOf(segment, leads), column, leads, 1);
    });
  }

  void EmitSegment(Value segment) {
    const Range range = RangeOf(segment, e_.ir().getTrue());
    Value first = e_.I64(0);
    // Several vectors at once: each index is then read and checked once for all of them.
    for (const int width : {64, 16, 1}) {
      if (width > 1 && !key_.contiguous) continue;
      Value const columns = e_.ir().CreateSub(args_.columns, first);
      Value const end = e_.Add(first, e_.Mul(e_.ir().CreateSDiv(columns, e_.I64(width)), e_.I64(width)));
      e_.Loop(first, end, e_.I64(width), [&](Value column) {
        EmitColumns(segment, range, column, e_.ir().CreateICmpEQ(column, e_.I64(0)), width);
      });
      first = end;
    }
  }

  // Emits `width` columns of a segment.
  void EmitColumns(Value segment, const Range& range, Value column, Value reports, int width) {
    Value const data = e_.Mul(column, args_.data_column);
    Values carried = monoid_.Init(width);
    carried.push_back(e_.I64(0));  // rows that count
    const Values reduced =
        e_.Loop(range.begin, range.end, e_.I64(1), carried,
                [&](Value n, const Values& current) { return Step(n, current, data, reports, width); });
    e_.If(e_.ir().CreateICmpNE(reduced.back(), e_.I64(0)), [&] {
      const std::vector<Typed> result = monoid_.Finish({reduced.begin(), reduced.end() - 1}, width);
      Value const at = e_.Add(e_.Mul(segment, args_.out_row), e_.Mul(column, args_.out_column));
      e_.Store(key_.output(), args_.out, at, result[0].value, result[0].scalar, width);
    });
  }

  // Takes in position `n`.
  Values Step(Value n, const Values& current, Value data, Value reports, int width) {
    Value row = n, counts = e_.ir().getTrue();
    if (key_.indexed) {
      row = e_.Load(key_.index, args_.index, e_.Mul(n, args_.index_stride), Scalar::kI64);
      Value const inside = e_.IsIndex(row, args_.rows);
      e_.ReportIndex(args_.error_word, e_.ir().CreateAnd(reports, e_.ir().CreateNot(inside)), row);
      counts = inside;
    }
    counts = e_.ir().CreateAnd(counts, e_.ir().CreateICmpNE(row, args_.padding));
    row = e_.ir().CreateSelect(counts, row, e_.I64(0));
    Value element =
        e_.Load(key_.data, args_.data, e_.Add(e_.Mul(row, args_.data_row), data), accumulate_, width);
    if (key_.weighted) element = Weigh(element, n, width);
    const State before(current.begin(), current.end() - 1);
    Values next = monoid_.Step(before, element, Splat(row, width), width);
    for (size_t c = 0; c < next.size(); ++c) next[c] = e_.ir().CreateSelect(counts, next[c], before[c]);
    next.push_back(e_.Add(current.back(), e_.ir().CreateZExt(counts, e_.ir().getInt64Ty())));
    return next;
  }

  Value Splat(Value value, int width) {
    return width == 1 ? value : e_.ir().CreateVectorSplat(static_cast<unsigned>(width), value);
  }
  Value Weigh(Value element, Value n, int width) {
    Value const weight =
        Splat(e_.Load(key_.data, args_.weights, e_.Mul(n, args_.weights_stride), accumulate_), width);
    return IsFloat(accumulate_) ? e_.ir().CreateFMul(element, weight) : e_.ir().CreateMul(element, weight);
  }

  const SegmentsKey& key_;
  const SegmentsArguments<Emitted>& args_;
  Emitter& e_;
  const Scalar accumulate_;
  MonoidEmission monoid_;
};

}  // namespace

absl::Status SegmentsSkeleton::EmitBody(const SegmentsKey& key, const SegmentsArguments<Emitted>& arguments,
                                        Emitter& e) const {
  ASSIGN_OR_RETURN(const ReduceFormula formula, ParseReduce(key.row->formula));
  return SegmentsEmission(key, arguments, formula, e).Run();
}

constinit const PlannerFactory kSegmentsPlanner = MakePlanner<SegmentsPlanner>;

}  // namespace xpud::kernels
