#include "kernels/families/layer_norm_backward.h"

#include <algorithm>

#include "kernels/families/row_emission.h"
#include "kernels/families/skeleton_number.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

// ---- planning

namespace {

constexpr float kElementNanoseconds = 0.6f;  // two passes over grad and x, one over the sums
// More parts feed more groups, but each costs the merge two rows.
constexpr int64_t kHostParts = 64, kGpuParts = 264, kWarpParts = 256;
constexpr int64_t kMaxPart = 1024;  // rows: what is added up in a row stays exact enough

// Rows of a part.
int64_t PartOf(int64_t rows, int64_t columns, bool gpu, bool warps) {
  if (gpu) return std::min(CeilDiv(rows, warps ? kWarpParts : kGpuParts), kMaxPart);
  const int64_t slice = SliceOf(rows, kElementNanoseconds * static_cast<float>(columns), 1);
  return std::min(std::max(slice, CeilDiv(rows, kHostParts)), kMaxPart);
}

}  // namespace

absl::StatusOr<Readiness> LayerNormBackwardPlanner::Plan(const OpCall& call, Workspace workspace,
                                                         LaunchList& launches) {
  const Operand &dx = call.outputs[0], &dweight = call.outputs[1], &dbias = call.outputs[2];
  const Operand &grad = call.inputs[0], &x = call.inputs[1], &mean = call.inputs[2], &rstd = call.inputs[3],
                &weight = call.inputs[4];
  const int64_t rows = x.sizes[0], columns = x.sizes[1];
  if (columns == 0) return Readiness::kReady;
  const bool gpu = cache_.target() != Target::kHost;

  LayerNormBackwardKey key;
  key.weighted = weight.present;
  key.types = {dx.dtype, dweight.dtype, dbias.dtype, grad.dtype,
               x.dtype,  mean.dtype,    rstd.dtype,  weight.present ? weight.dtype : x.dtype};
  if (cache_.target() == Target::kNvptx) {
    const int block = RowBlock(columns, {&dx, &grad, &x, weight.present ? &weight : &x}, {});
    key.rows = PlanRows(rows, columns, block, 2);
  }
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(rows_, key.Pack(/*merge=*/false)));
  ASSIGN_OR_RETURN(const Kernel* const merge, cache_.Find(merge_, key.Pack(/*merge=*/true)));
  if (kernel == nullptr || merge == nullptr) return Readiness::kCompiling;

  const int64_t part = rows == 0 ? 1 : PartOf(rows, columns, gpu, key.rows.warps);
  const int64_t parts = CeilDiv(rows, part);
  void* sums = nullptr;
  if (parts > 0) {
    const size_t size = key.accumulate() == Scalar::kF64 ? sizeof(double) : sizeof(float);
    ASSIGN_OR_RETURN(sums, workspace(static_cast<size_t>(parts) * 2 * static_cast<size_t>(columns) * size));
    Launch& launch = launches.Add();
    launch.Reset(kernel, static_cast<uint32_t>(CeilDiv(parts, gpu ? key.rows.rows_a_group() : 1)));
    if (gpu) launch.group_size = {kGpuLanes, 1, 1};
    for (void* pointer :
         {dx.data, sums, grad.data, x.data, mean.data, rstd.data, weight.present ? weight.data : nullptr})
      launch.Push(pointer);
    for (const int64_t number : {rows, columns, part}) launch.Push(number);
  }
  const int64_t slice = gpu ? kWarpLanes : SliceOf(columns, 0.2f * static_cast<float>(parts + 1));
  Launch& merging = launches.Add();
  merging.Reset(merge, static_cast<uint32_t>(CeilDiv(columns, slice)));
  if (gpu) merging.group_size = {kGpuLanes, 1, 1};
  for (void* pointer : {dweight.data, dbias.data, sums}) merging.Push(pointer);
  for (const int64_t number : {columns, parts, slice}) merging.Push(number);
  return Readiness::kReady;
}

// ---- emission

KernelKey LayerNormBackwardKey::Pack(bool merge) const {
  KeyWriter writer(
      static_cast<uint8_t>(merge ? SkeletonNumber::kLayerNormMerge : SkeletonNumber::kLayerNormBackward));
  for (const ops::DType type : types) writer.Put(static_cast<uint64_t>(type), 4);
  writer.Put(weighted, 1);
  if (!merge) rows.Pack(writer);
  return writer.key();
}

LayerNormBackwardKey LayerNormBackwardKey::Unpack(const KernelKey& packed) {
  KeyReader reader(packed);
  LayerNormBackwardKey key;
  for (ops::DType& type : key.types) type = static_cast<ops::DType>(reader.Take(4));
  key.weighted = reader.Take(1) != 0;
  key.rows = RowPlan::Unpack(reader);  // of a merge: none
  return key;
}

Scalar LayerNormBackwardKey::accumulate() const {
  return types[kX] == ops::DType::kFloat64 || types[kGrad] == ops::DType::kFloat64 ? Scalar::kF64
                                                                                   : Scalar::kF32;
}

namespace {

using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;
using Key = LayerNormBackwardKey;

class RowsEmission {
 public:
  RowsEmission(const Key& key, Emitter& emitter)
      : key_(key), e_(emitter), held_(emitter), real_(key.accumulate()) {}

  void Run(const std::string& name) {
    std::vector<ArgType> args(7, ArgType::kPointer);
    args.resize(10, ArgType::kI64);
    e_.Begin(name, args);
    if (key_.rows.warps) e_.UseWarps();
    Value const part = e_.Team();
    dweight_ = e_.Mul(e_.Mul(part, e_.I64(2)), Columns());
    dbias_ = e_.Add(dweight_, Columns());
    Value const begin = e_.Mul(part, e_.Arg(9)), end = e_.Min(e_.Add(begin, e_.Arg(9)), e_.Arg(7));
    if (key_.rows.blocks > 0) return EmitHeld(begin, end);
    EachColumn([&](Value c) {
      e_.StoreRaw(e_.Arg(1), e_.Add(dweight_, c), e_.Constant(real_, 0));
      e_.StoreRaw(e_.Arg(1), e_.Add(dbias_, c), e_.Constant(real_, 0));
    });
    e_.Loop(begin, end, e_.I64(1), [&](Value row) { EmitRow(row); });
  }

 private:
  struct Row {
    Value base, mean, rstd;
  };
  struct Element {
    Value grad, h, g;
  };

  Value Columns() const { return e_.Arg(8); }
  void EachColumn(const std::function<void(Value)>& body) {
    e_.Loop(e_.Lane(), Columns(), e_.Lanes(), body, Emitter::LoopKind::kParallel);
  }
  Value Input(Key::Operand operand, Value index) {
    return e_.Load(key_.types[operand], e_.Arg(static_cast<size_t>(operand) - 1), index, real_);
  }
  Element ElementAt(const Row& row, Value c) {
    Value const at = e_.Add(row.base, c);
    Value const grad = Input(Key::kGrad, at);
    Value const h = e_.ir().CreateFMul(e_.ir().CreateFSub(Input(Key::kX, at), row.mean), row.rstd);
    return {grad, h, key_.weighted ? e_.ir().CreateFMul(grad, Input(Key::kWeight, c)) : grad};
  }

  void EmitRow(Value index) {
    const Row row = {e_.Mul(index, Columns()), Input(Key::kMean, index), Input(Key::kRstd, index)};
    const Values means = MeansOf(row);
    EachColumn([&](Value c) {
      const Element x = ElementAt(row, c);
      Value const rest =
          e_.ir().CreateFSub(x.g, e_.ir().CreateFAdd(means[0], e_.ir().CreateFMul(x.h, means[1])));
      Accumulate(dweight_, c, e_.ir().CreateFMul(x.grad, x.h));
      Accumulate(dbias_, c, x.grad);
      e_.Store(key_.types[Key::kDx], e_.Arg(0), e_.Add(row.base, c), e_.ir().CreateFMul(row.rstd, rest),
               real_);
    });
  }

  // GPU: the row, and its columns' sums over the rows so far, stay in registers.
  void EmitHeld(Value begin, Value end) {
    held_.HoldRows(Columns(), key_.rows);
    const auto load = [&](Key::Operand operand, Value offset) {
      return held_.LoadHeld(key_.types[operand], e_.Arg(static_cast<size_t>(operand) - 1), offset, real_);
    };
    const Values weight = key_.weighted ? load(Key::kWeight, e_.I64(0)) : Values{};
    const size_t count = static_cast<size_t>(key_.rows.block) * static_cast<size_t>(key_.rows.blocks);
    const Values sums =
        e_.Loop(begin, end, e_.I64(1), Values(2 * count, e_.Constant(real_, 0)),
                [&](Value row, const Values& current) {
                  Value const base = e_.Mul(row, Columns());
                  Value const mean = Input(Key::kMean, row), rstd = Input(Key::kRstd, row);
                  const Values grad = load(Key::kGrad, base);
                  Values h = load(Key::kX, base), g = grad, gh, dx, next = current;
                  for (size_t i = 0; i < count; ++i) {
                    h[i] = e_.ir().CreateFMul(e_.ir().CreateFSub(h[i], mean), rstd);
                    if (key_.weighted) g[i] = e_.ir().CreateFMul(grad[i], weight[i]);
                    gh.push_back(e_.ir().CreateFMul(g[i], h[i]));
                    next[i] = e_.ir().CreateFAdd(current[i], e_.ir().CreateFMul(grad[i], h[i]));
                    next[count + i] = e_.ir().CreateFAdd(current[count + i], grad[i]);
                  }
                  Values means = held_.SumsHeld({g, gh});
                  Value const columns = e_.Convert(Columns(), Scalar::kI64, real_);
                  for (Value& m : means) m = e_.ir().CreateFDiv(m, columns);
                  for (size_t i = 0; i < count; ++i) {
                    Value const rest = e_.ir().CreateFAdd(means[0], e_.ir().CreateFMul(h[i], means[1]));
                    dx.push_back(e_.ir().CreateFMul(rstd, e_.ir().CreateFSub(g[i], rest)));
                  }
                  held_.StoreHeld(key_.types[Key::kDx], e_.Arg(0), base, dx, real_);
                  return next;
                });
    // A warp beyond the last part has no place to leave them.
    e_.If(e_.ir().CreateICmpSLT(begin, e_.Arg(7)), [&] {
      const ops::DType type = real_ == Scalar::kF64 ? ops::DType::kFloat64 : ops::DType::kFloat32;
      const auto half = sums.begin() + static_cast<ptrdiff_t>(count);
      held_.StoreHeld(type, e_.Arg(1), dweight_, {sums.begin(), half}, real_);
      held_.StoreHeld(type, e_.Arg(1), dbias_, {half, sums.end()}, real_);
    });
  }

  // Of g, and of g * h.
  Values MeansOf(const Row& row) {
    const llvm::IRBuilderBase::FastMathFlagGuard guard(e_.ir());
    llvm::FastMathFlags flags = e_.ir().getFastMathFlags();
    flags.setAllowReassoc();  // lanes of a vector add up on their own
    e_.ir().setFastMathFlags(flags);
    Value const zero = e_.Constant(real_, 0);
    Values sums = e_.Loop(
        e_.Lane(), Columns(), e_.Lanes(), {zero, zero},
        [&](Value c, const Values& current) -> Values {
          const Element x = ElementAt(row, c);
          return {e_.ir().CreateFAdd(current[0], x.g),
                  e_.ir().CreateFAdd(current[1], e_.ir().CreateFMul(x.g, x.h))};
        },
        Emitter::LoopKind::kParallel);
    Value const count = e_.Convert(Columns(), Scalar::kI64, real_);
    for (Value& sum : sums) sum = e_.ir().CreateFDiv(SumOverGroup(e_, sum), count);
    return sums;
  }

  void Accumulate(Value base, Value c, Value value) {
    Value const at = e_.Add(base, c);
    e_.StoreRaw(e_.Arg(1), at, e_.ir().CreateFAdd(e_.LoadRaw(e_.TypeOf(real_), e_.Arg(1), at), value));
  }

  const Key& key_;
  Emitter& e_;
  RowEmission held_;
  const Scalar real_;
  Value dweight_ = nullptr, dbias_ = nullptr;  // where the part's sums begin in the workspace
};

class MergeEmission {
 public:
  MergeEmission(const Key& key, Emitter& emitter) : key_(key), e_(emitter), real_(key.accumulate()) {}

  void Run(const std::string& name) {
    std::vector<ArgType> args(3, ArgType::kPointer);
    args.resize(6, ArgType::kI64);
    e_.Begin(name, args);
    Value begin = e_.Mul(e_.Group(0), e_.Arg(5));
    Value const end = e_.Min(e_.Add(begin, e_.Arg(5)), e_.Arg(3));
    if (e_.gpu()) return MergeGpuColumns(begin, end);
    const int width = real_ == Scalar::kF32 ? 16 : 8;
    Value const whole = e_.ir().CreateUDiv(e_.ir().CreateSub(end, begin), e_.I64(width));
    Value const middle = e_.Add(begin, e_.Mul(whole, e_.I64(width)));
    e_.Loop(begin, middle, e_.I64(width), [&](Value c) { MergeColumns(c, width); });
    begin = middle;
    e_.Loop(begin, end, e_.I64(1), [&](Value c) { MergeColumns(c, 1); });
  }

 private:
  // A slice is as many columns as a warp has lanes; each strand of 32 lanes adds up a share of the parts.
  void MergeGpuColumns(Value begin, Value end) {
    constexpr int64_t kStrands = kGpuWarps;
    Value const own = e_.Add(begin, e_.ir().CreateAnd(e_.Lane(), e_.I64(kWarpLanes - 1)));
    Value const strand = e_.ir().CreateLShr(e_.Lane(), e_.I64(5));
    Value const column = e_.Min(own, e_.ir().CreateSub(end, e_.I64(1)));
    llvm::Type* const type = e_.TypeOf(real_);
    Value const zero = e_.Constant(real_, 0);
    const Values sums = e_.LoopUnrolled(
        strand, e_.Arg(4), kStrands, 1, 8, {zero, zero}, [&](const Values& parts, const Values& current) {
          Values loaded, next = current;
          for (Value part : parts) {
            Value const dweight = e_.Add(e_.Mul(e_.Mul(part, e_.I64(2)), e_.Arg(3)), column);
            loaded.push_back(e_.LoadRaw(type, e_.Arg(2), dweight));
            loaded.push_back(e_.LoadRaw(type, e_.Arg(2), e_.Add(dweight, e_.Arg(3))));
          }
          for (size_t i = 0; i < loaded.size(); ++i) next[i % 2] = e_.ir().CreateFAdd(next[i % 2], loaded[i]);
          return next;
        });
    Values shared;
    for (size_t i = 0; i < 2; ++i) {
      shared.push_back(e_.Shared(type, kGpuLanes));
      e_.StoreRaw(shared[i], e_.Lane(), sums[i]);
    }
    e_.Barrier();
    Value const first = e_.ir().CreateICmpEQ(strand, e_.I64(0));
    e_.If(e_.ir().CreateAnd(first, e_.ir().CreateICmpSLT(own, end)), [&] {
      for (size_t i = 0; i < 2; ++i) {
        Value sum = e_.LoadRaw(type, shared[i], e_.Lane());
        for (int64_t s = 1; s < kStrands; ++s) {
          Value const at = e_.Add(e_.Lane(), e_.I64(s * int64_t{kWarpLanes}));
          sum = e_.ir().CreateFAdd(sum, e_.LoadRaw(type, shared[i], at));
        }
        e_.Store(key_.types[i == 0 ? Key::kDweight : Key::kDbias], e_.Arg(i), own, sum, real_);
      }
    });
  }

  void MergeColumns(Value column, int width) {
    llvm::Type* const type = e_.TypeOf(real_, width);
    Value const zero = e_.Constant(real_, 0, width);
    const Values sums = e_.Loop(
        e_.I64(0), e_.Arg(4), e_.I64(1), {zero, zero}, [&](Value part, const Values& current) -> Values {
          Value const dweight = e_.Add(e_.Mul(e_.Mul(part, e_.I64(2)), e_.Arg(3)), column);
          Value const dbias = e_.Add(dweight, e_.Arg(3));
          return {e_.ir().CreateFAdd(current[0], e_.LoadRaw(type, e_.Arg(2), dweight)),
                  e_.ir().CreateFAdd(current[1], e_.LoadRaw(type, e_.Arg(2), dbias))};
        });
    e_.Store(key_.types[Key::kDweight], e_.Arg(0), column, sums[0], real_, width);
    e_.Store(key_.types[Key::kDbias], e_.Arg(1), column, sums[1], real_, width);
  }

  const Key& key_;
  Emitter& e_;
  const Scalar real_;
};

}  // namespace

std::string LayerNormBackwardSkeleton::NameOf(const KernelKey&) const { return "layer_norm_backward"; }
std::string LayerNormBackwardSkeleton::Describe(const KernelKey&) const { return "layer_norm_backward"; }
absl::Status LayerNormBackwardSkeleton::Emit(const KernelKey& packed, const std::string& name,
                                             Emitter& emitter) const {
  const Key key = Key::Unpack(packed);
  RowsEmission(key, emitter).Run(name);
  return absl::OkStatus();
}

std::string LayerNormMergeSkeleton::NameOf(const KernelKey&) const { return "layer_norm_merge"; }
std::string LayerNormMergeSkeleton::Describe(const KernelKey&) const { return "layer_norm_merge"; }
absl::Status LayerNormMergeSkeleton::Emit(const KernelKey& packed, const std::string& name,
                                          Emitter& emitter) const {
  const Key key = Key::Unpack(packed);
  MergeEmission(key, emitter).Run(name);
  return absl::OkStatus();
}

}  // namespace xpud::kernels
