#include "kernels/families/scatter.h"

#include <algorithm>

#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

// ---- planning

namespace {

constexpr int64_t kMaxRowSlices = 64;        // each slice goes through the whole index
constexpr int64_t kGpuThreads = 128 * 1024;  // enough to fill a device

struct Cut {
  int64_t column_slice = 1, row_slice = 1;
};

// Cuts columns first. If there are few columns, cuts rows too, as long as reading the index stays cheap
// compared with the additions.
Cut HostCut(int64_t rows, int64_t columns, int64_t count, size_t element) {
  const float nanoseconds = 2.0f * static_cast<float>(element) / kBytesPerNanosecond + 0.02f;
  const int64_t wanted =
      std::clamp<int64_t>(static_cast<int64_t>(static_cast<float>(count) * static_cast<float>(columns) *
                                               nanoseconds / kSliceNanoseconds),
                          1, 16);
  const int64_t line = 64 / static_cast<int64_t>(element);
  const int64_t column_slice =
      std::min(columns, std::max(CeilDiv(CeilDiv(columns, wanted), line), int64_t{4}) * line);
  const int64_t ranges = std::clamp<int64_t>(wanted / CeilDiv(columns, column_slice), 1,
                                             std::min<int64_t>(rows, std::max<int64_t>(columns / 4, 1)));
  return {column_slice, CeilDiv(rows, ranges)};
}

}  // namespace

absl::StatusOr<Readiness> ScatterPlanner::Plan(const OpCall& call, Workspace, LaunchList& launches) {
  const Operand &out = call.outputs[0], &index = call.inputs[0], &source = call.inputs[1];
  const int64_t rows = out.sizes[0], columns = out.sizes[1], count = index.sizes[0];
  if (count == 0 || columns == 0) return Readiness::kReady;
  const bool gpu = cache_.target() != Target::kHost;

  ScatterKey key;
  key.type = out.dtype;
  key.index = index.dtype;
  key.contiguous = out.strides[1] == 1 && source.strides[1] == 1;
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key));
  if (kernel == nullptr) return Readiness::kCompiling;

  Cut cut;
  if (gpu) {
    cut.row_slice =
        CeilDiv(std::max<int64_t>(rows, 1), std::clamp<int64_t>(kGpuThreads / columns, 1, kMaxRowSlices));
  } else {
    cut = HostCut(std::max<int64_t>(rows, 1), columns, count, ops::SizeOf(out.dtype));
  }
  const int64_t ranges = std::max<int64_t>(CeilDiv(rows, cut.row_slice), 1);
  Launch& launch = launches.Add();
  if (gpu) {
    launch.Reset(kernel, static_cast<uint32_t>(CeilDiv(ranges * columns, kGpuLanes)));
    launch.group_size = {kGpuLanes, 1, 1};
  } else {
    launch.Reset(kernel, static_cast<uint32_t>(CeilDiv(columns, cut.column_slice)),
                 static_cast<uint32_t>(ranges));
  }
  ScatterArguments<Planned> arguments{.out = out.data,
                                      .index = index.data,
                                      .source = source.data,
                                      .error_word = call.error_word,
                                      .rows = rows,
                                      .columns = columns,
                                      .count = count,
                                      .padding = call.attributes[0].AsInteger(),
                                      .column_slice = cut.column_slice,
                                      .row_slice = cut.row_slice,
                                      .out_row_stride = out.strides[0],
                                      .out_column_stride = out.strides[1],
                                      .index_stride = index.strides[0],
                                      .source_row_stride = source.strides[0],
                                      .source_column_stride = source.strides[1]};
  PushArguments(key, arguments, launch);
  return Readiness::kReady;
}

// ---- emission

namespace {

using Value = llvm::Value*;

class ScatterEmission {
 public:
  ScatterEmission(const ScatterKey& key, const ScatterArguments<Emitted>& arguments, Emitter& emitter)
      : key_(key), args_(arguments), e_(emitter), scalar_(ScalarOf(key.type)) {}

  void Run() {
    if (e_.gpu()) {
      Value const thread = e_.Add(e_.Mul(e_.Group(0), e_.Lanes()), e_.Lane());
      Value const part = e_.ir().CreateUDiv(thread, args_.columns);
      Value const column = e_.ir().CreateSub(thread, e_.Mul(part, args_.columns));
      EmitIndex(part, column, e_.Add(column, e_.I64(1)), e_.ir().CreateICmpEQ(thread, e_.I64(0)));
    } else {
      Value const begin = e_.Mul(e_.Group(0), args_.column_slice);
      Value const end = e_.Min(e_.Add(begin, args_.column_slice), args_.columns);
      EmitIndex(e_.Group(1), begin, end, e_.ir().CreateICmpEQ(e_.Add(begin, e_.Group(1)), e_.I64(0)));
    }
  }

 private:
  // Emits columns begin .. end - 1 of row slice `part`. `reports`: lanes that report invalid indices.
  void EmitIndex(Value part, Value begin, Value end, Value reports) {
    Value const first = e_.Mul(part, args_.row_slice);
    Value const beyond = e_.Min(e_.Add(first, args_.row_slice), args_.rows);
    e_.Loop(e_.I64(0), args_.count, e_.I64(1), [&](Value n) {
      Value const row = e_.Load(key_.index, args_.index, e_.Mul(n, args_.index_stride), Scalar::kI64);
      Value const inside = e_.IsIndex(row, args_.rows);
      e_.ReportIndex(args_.error_word, e_.ir().CreateAnd(reports, e_.ir().CreateNot(inside)), row);
      Value const heeded = e_.ir().CreateAnd(inside, e_.ir().CreateICmpNE(row, args_.padding));
      Value const ours =
          e_.ir().CreateAnd(e_.ir().CreateICmpSGE(row, first), e_.ir().CreateICmpSLT(row, beyond));
      e_.If(e_.ir().CreateAnd(heeded, ours), [&] { AddRow(row, n, begin, end); });
    });
  }

  void AddRow(Value row, Value n, Value begin, Value end) {
    Value const out = e_.Mul(row, args_.out_row_stride);
    Value const source = e_.Mul(n, args_.source_row_stride);
    const auto offset = [&](Value base, Value c, Value stride) {
      return e_.Add(base, key_.contiguous ? c : e_.Mul(c, stride));
    };
    e_.Loop(
        begin, end, e_.I64(1),
        [&](Value c) {
          Value const at = offset(out, c, args_.out_column_stride);
          Value const old = e_.Load(key_.type, args_.out, at, scalar_);
          Value const added =
              e_.Load(key_.type, args_.source, offset(source, c, args_.source_column_stride), scalar_);
          Value const sum = IsFloat(scalar_) ? e_.ir().CreateFAdd(old, added) : e_.ir().CreateAdd(old, added);
          e_.Store(key_.type, args_.out, at, sum, scalar_);
        },
        Emitter::LoopKind::kParallel);
  }

  const ScatterKey& key_;
  const ScatterArguments<Emitted>& args_;
  Emitter& e_;
  const Scalar scalar_;
};

}  // namespace

absl::Status ScatterSkeleton::EmitBody(const ScatterKey& key, const ScatterArguments<Emitted>& arguments,
                                       Emitter& e) const {
  ScatterEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

}  // namespace xpud::kernels
