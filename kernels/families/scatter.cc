#include "kernels/families/scatter.h"

#include <algorithm>

#include "kernels/families/skeleton_number.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

// ---- planning

namespace {

constexpr int64_t kMaxRowSlices = 64;        // each goes through the whole index
constexpr int64_t kGpuThreads = 128 * 1024;  // enough to fill a device

struct Cut {
  int64_t column_slice = 1, row_slice = 1;
};

// Columns first; rows too where there are few columns, while going through the index stays cheap next to the
// additions.
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
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key.Pack()));
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
  for (void* pointer : {out.data, index.data, source.data, static_cast<void*>(call.error_word)})
    launch.Push(pointer);
  for (const int64_t number :
       {rows, columns, count, call.attributes[0].AsInteger(), cut.column_slice, cut.row_slice, out.strides[0],
        out.strides[1], index.strides[0], source.strides[0], source.strides[1]}) {
    launch.Push(number);
  }
  return Readiness::kReady;
}

// ---- emission

KernelKey ScatterKey::Pack() const {
  KeyWriter writer(static_cast<uint8_t>(SkeletonNumber::kScatterAdd));
  writer.Put(static_cast<uint64_t>(type), 4);
  writer.Put(static_cast<uint64_t>(index), 4);
  writer.Put(contiguous, 1);
  return writer.key();
}

ScatterKey ScatterKey::Unpack(const KernelKey& packed) {
  KeyReader reader(packed);
  ScatterKey key;
  key.type = static_cast<ops::DType>(reader.Take(4));
  key.index = static_cast<ops::DType>(reader.Take(4));
  key.contiguous = reader.Take(1) != 0;
  return key;
}

namespace {

using Value = llvm::Value*;

class ScatterEmission {
 public:
  ScatterEmission(const ScatterKey& key, Emitter& emitter)
      : key_(key), e_(emitter), scalar_(ScalarOf(key.type)) {}

  void Run(const std::string& name) {
    std::vector<ArgType> args(4, ArgType::kPointer);
    args.resize(15, ArgType::kI64);
    e_.Begin(name, args);
    if (e_.gpu()) {
      Value const thread = e_.Add(e_.Mul(e_.Group(0), e_.Lanes()), e_.Lane());
      Value const part = e_.ir().CreateUDiv(thread, Columns());
      Value const column = e_.ir().CreateSub(thread, e_.Mul(part, Columns()));
      EmitIndex(part, column, e_.Add(column, e_.I64(1)), e_.ir().CreateICmpEQ(thread, e_.I64(0)));
    } else {
      Value const begin = e_.Mul(e_.Group(0), e_.Arg(8));
      Value const end = e_.Min(e_.Add(begin, e_.Arg(8)), Columns());
      EmitIndex(e_.Group(1), begin, end, e_.ir().CreateICmpEQ(e_.Add(begin, e_.Group(1)), e_.I64(0)));
    }
  }

 private:
  Value Columns() const { return e_.Arg(5); }

  // Columns begin .. end - 1 of row slice `part`. `reports`: these lanes report wrong indices.
  void EmitIndex(Value part, Value begin, Value end, Value reports) {
    Value const first = e_.Mul(part, e_.Arg(9));
    Value const beyond = e_.Min(e_.Add(first, e_.Arg(9)), e_.Arg(4));
    e_.Loop(e_.I64(0), e_.Arg(6), e_.I64(1), [&](Value n) {
      Value const row = e_.Load(key_.index, e_.Arg(1), e_.Mul(n, e_.Arg(12)), Scalar::kI64);
      Value const inside = e_.IsIndex(row, e_.Arg(4));
      e_.ReportIndex(e_.Arg(3), e_.ir().CreateAnd(reports, e_.ir().CreateNot(inside)), row);
      Value const heeded = e_.ir().CreateAnd(inside, e_.ir().CreateICmpNE(row, e_.Arg(7)));
      Value const ours =
          e_.ir().CreateAnd(e_.ir().CreateICmpSGE(row, first), e_.ir().CreateICmpSLT(row, beyond));
      e_.If(e_.ir().CreateAnd(heeded, ours), [&] { AddRow(row, n, begin, end); });
    });
  }

  void AddRow(Value row, Value n, Value begin, Value end) {
    Value const out = e_.Mul(row, e_.Arg(10));
    Value const source = e_.Mul(n, e_.Arg(13));
    const auto offset = [&](Value base, Value c, size_t stride) {
      return e_.Add(base, key_.contiguous ? c : e_.Mul(c, e_.Arg(stride)));
    };
    e_.Loop(
        begin, end, e_.I64(1),
        [&](Value c) {
          Value const at = offset(out, c, 11);
          Value const old = e_.Load(key_.type, e_.Arg(0), at, scalar_);
          Value const added = e_.Load(key_.type, e_.Arg(2), offset(source, c, 14), scalar_);
          Value const sum = IsFloat(scalar_) ? e_.ir().CreateFAdd(old, added) : e_.ir().CreateAdd(old, added);
          e_.Store(key_.type, e_.Arg(0), at, sum, scalar_);
        },
        Emitter::LoopKind::kParallel);
  }

  const ScatterKey& key_;
  Emitter& e_;
  const Scalar scalar_;
};

}  // namespace

std::string ScatterSkeleton::NameOf(const KernelKey&) const { return "scatter_add"; }
std::string ScatterSkeleton::Describe(const KernelKey&) const { return "scatter_add"; }
absl::Status ScatterSkeleton::Emit(const KernelKey& packed, const std::string& name, Emitter& emitter) const {
  const ScatterKey key = ScatterKey::Unpack(packed);
  ScatterEmission(key, emitter).Run(name);
  return absl::OkStatus();
}

}  // namespace xpud::kernels
