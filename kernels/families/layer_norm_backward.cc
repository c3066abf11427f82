#include "kernels/families/layer_norm_backward.h"

#include <algorithm>

#include "kernels/families/planners.h"
#include "kernels/families/row_emission.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/layer_norm.h"

namespace xpud::kernels {

// ---- planning

namespace {

constexpr float kElementNanoseconds = 0.6f;  // two passes over grad and x, one over the sums
// More parts give work to more groups, but each adds two rows to the merge.
constexpr int64_t kHostParts = 64, kGpuParts = 264, kWarpParts = 256;
constexpr int64_t kMaxPart = 1024;  // rows: keeps the sums of a part precise enough

// Returns the number of rows of a part.
int64_t PartOf(int64_t rows, int64_t columns, bool gpu, bool warps) {
  if (gpu) return std::min(CeilDiv(rows, warps ? kWarpParts : kGpuParts), kMaxPart);
  const int64_t slice = SliceOf(rows, kElementNanoseconds * static_cast<float>(columns), 1);
  return std::min(std::max(slice, CeilDiv(rows, kHostParts)), kMaxPart);
}

// RMS norm has neither a mean nor a bias: rstd and the weight's gradient stand for them.
ops::LayerNormBackwardCall<ops::Given> OperandsOf(const OpCall& call) {
  if (call.row->family == ops::Family::kLayerNormBackward) return ops::Read<ops::LayerNormBackwardCall>(call);
  const auto rms = ops::Read<ops::RmsNormBackwardCall>(call);
  return {.grad_input = rms.grad_input,
          .grad_weight = rms.grad_weight,
          .grad_bias = rms.grad_weight,
          .grad_out = rms.grad_out,
          .input = rms.input,
          .mean = rms.rstd,
          .rstd = rms.rstd,
          .weight = rms.weight};
}

}  // namespace

absl::StatusOr<Readiness> LayerNormBackwardPlanner::Plan(const OpCall& call, Workspace workspace,
                                                         LaunchList& launches) {
  const bool centred = call.row->family == ops::Family::kLayerNormBackward;
  const auto norm = OperandsOf(call);
  const Operand &dx = *norm.grad_input, &dweight = *norm.grad_weight, &dbias = *norm.grad_bias,
                &grad = *norm.grad_out, &x = *norm.input, &mean = *norm.mean, &rstd = *norm.rstd,
                &weight = *norm.weight;
  const int64_t rows = x.sizes[0], columns = x.sizes[1];
  if (columns == 0) return Readiness::kReady;
  const bool gpu = cache_.target() != Target::kHost;

  LayerNormBackwardKey key;
  key.weighted = weight.present;
  key.centred = centred;
  key.types = {dx.dtype, dweight.dtype, dbias.dtype, grad.dtype,
               x.dtype,  mean.dtype,    rstd.dtype,  weight.present ? weight.dtype : x.dtype};
  if (cache_.target() == Target::kNvptx) {
    const int block = RowBlock(columns, {&dx, &grad, &x, weight.present ? &weight : &x}, {});
    key.rows = PlanRows(rows, columns, block, 2);
  }
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(rows_, key));
  LayerNormBackwardKey merge_key = key;
  merge_key.rows = {};
  ASSIGN_OR_RETURN(const Kernel* const merge, cache_.Find(merge_, merge_key));
  if (kernel == nullptr || merge == nullptr) return Readiness::kCompiling;

  const int64_t part = rows == 0 ? 1 : PartOf(rows, columns, gpu, key.rows.warps);
  const int64_t parts = CeilDiv(rows, part);
  void* sums = nullptr;
  if (parts > 0) {
    const size_t size = key.accumulate() == Scalar::kF64 ? sizeof(double) : sizeof(float);
    ASSIGN_OR_RETURN(sums, workspace(static_cast<size_t>(parts) * 2 * static_cast<size_t>(columns) * size));
    Launch& launch = launches.Add();
    launch.Reset(kernel, CeilDiv(parts, gpu ? key.rows.rows_a_group() : 1));
    if (gpu) launch.group_size = {kGpuLanes, 1, 1};
    LayerNormBackwardArguments<Planned> arguments;
    arguments.dx = dx.data;
    arguments.sums = sums;
    arguments.inputs = {grad.data, x.data, mean.data, rstd.data, weight.present ? weight.data : nullptr};
    arguments.rows = rows;
    arguments.columns = columns;
    arguments.part = part;
    PushArguments(key, arguments, launch);
  }
  const int64_t slice = gpu ? kWarpLanes : SliceOf(columns, 0.2f * static_cast<float>(parts + 1));
  Launch& merging = launches.Add();
  merging.Reset(merge, CeilDiv(columns, slice));
  if (gpu) merging.group_size = {kGpuLanes, 1, 1};
  LayerNormMergeArguments<Planned> arguments{.dweight = dweight.data,
                                             .dbias = centred ? dbias.data : nullptr,
                                             .sums = sums,
                                             .columns = columns,
                                             .parts = parts,
                                             .slice = slice};
  PushArguments(merge_key, arguments, merging);
  return Readiness::kReady;
}

// ---- emission

namespace {

using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;
using Key = LayerNormBackwardKey;

class RowsEmission {
 public:
  RowsEmission(const Key& key, const LayerNormBackwardArguments<Emitted>& arguments, Emitter& emitter)
      : key_(key), args_(arguments), e_(emitter), held_(emitter), real_(key.accumulate()) {}

  void Run() {
    if (key_.rows.warps) e_.UseWarps();
    Value const part = e_.Team();
    dweight_ = e_.Mul(e_.Mul(part, e_.I64(2)), args_.columns);
    dbias_ = e_.Add(dweight_, args_.columns);
    Value const begin = e_.Mul(part, args_.part), end = e_.Min(e_.Add(begin, args_.part), args_.rows);
    if (key_.rows.blocks > 0) return EmitHeld(begin, end);
    EachColumn([&](Value c) {
      e_.StoreRaw(args_.sums, e_.Add(dweight_, c), e_.Constant(real_, 0));
      e_.StoreRaw(args_.sums, e_.Add(dbias_, c), e_.Constant(real_, 0));
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

  void EachColumn(const std::function<void(Value)>& body) {
    e_.Loop(e_.Lane(), args_.columns, e_.Lanes(), body, Emitter::LoopKind::kParallel);
  }
  Value Input(Key::Operand operand, Value index) {
    return e_.Load(key_.types[operand], args_.Input(operand), index, real_);
  }
  Value NormalisedOf(Value x, Value mean, Value rstd) {
    return e_.ir().CreateFMul(key_.centred ? e_.ir().CreateFSub(x, mean) : x, rstd);
  }
  // g minus its projections on the statistics' gradients; `means` are those of g and of g * h.
  Value RestOf(Value g, Value h, const Values& means) {
    Value const along = e_.ir().CreateFMul(h, means[1]);
    return e_.ir().CreateFSub(g, key_.centred ? e_.ir().CreateFAdd(means[0], along) : along);
  }
  Element ElementAt(const Row& row, Value c) {
    Value const at = e_.Add(row.base, c);
    Value const grad = Input(Key::kGrad, at);
    Value const h = NormalisedOf(Input(Key::kX, at), row.mean, row.rstd);
    return {grad, h, key_.weighted ? e_.ir().CreateFMul(grad, Input(Key::kWeight, c)) : grad};
  }

  void EmitRow(Value index) {
    const Row row = {e_.Mul(index, args_.columns), Input(Key::kMean, index), Input(Key::kRstd, index)};
    const Values means = MeansOf(row);
    EachColumn([&](Value c) {
      const Element x = ElementAt(row, c);
      Value const rest = RestOf(x.g, x.h, means);
      Accumulate(dweight_, c, e_.ir().CreateFMul(x.grad, x.h));
      Accumulate(dbias_, c, x.grad);
      e_.Store(key_.types[Key::kDx], args_.dx, e_.Add(row.base, c), e_.ir().CreateFMul(row.rstd, rest),
               real_);
    });
  }

  // GPU: the row, and its columns' sums over the rows so far, stay in registers.
  void EmitHeld(Value begin, Value end) {
    held_.HoldRows(args_.columns, key_.rows);
    const auto load = [&](Key::Operand operand, Value offset) {
      return held_.LoadHeld(key_.types[operand], args_.Input(operand), offset, real_);
    };
    const Values weight = key_.weighted ? load(Key::kWeight, e_.I64(0)) : Values{};
    const size_t count = static_cast<size_t>(key_.rows.block) * static_cast<size_t>(key_.rows.blocks);
    const Values sums = e_.Loop(begin, end, e_.I64(1), Values(2 * count, e_.Constant(real_, 0)),
                                [&](Value row, const Values& current) {
                                  Value const base = e_.Mul(row, args_.columns);
                                  Value const mean = Input(Key::kMean, row), rstd = Input(Key::kRstd, row);
                                  const Values grad = load(Key::kGrad, base);
                                  Values h = load(Key::kX, base), g = grad, gh, dx, next = current;
                                  for (size_t i = 0; i < count; ++i) {
                                    h[i] = NormalisedOf(h[i], mean, rstd);
                                    if (key_.weighted) g[i] = e_.ir().CreateFMul(grad[i], weight[i]);
                                    gh.push_back(e_.ir().CreateFMul(g[i], h[i]));
                                    next[i] =
                                        e_.ir().CreateFAdd(current[i], e_.ir().CreateFMul(grad[i], h[i]));
                                    next[count + i] = e_.ir().CreateFAdd(current[count + i], grad[i]);
                                  }
                                  Values means = held_.SumsHeld({g, gh});
                                  Value const columns = e_.Convert(args_.columns, Scalar::kI64, real_);
                                  for (Value& m : means) m = e_.ir().CreateFDiv(m, columns);
                                  for (size_t i = 0; i < count; ++i) {
                                    dx.push_back(e_.ir().CreateFMul(rstd, RestOf(g[i], h[i], means)));
                                  }
                                  held_.StoreHeld(key_.types[Key::kDx], args_.dx, base, dx, real_);
                                  return next;
                                });
    // A warp beyond the last part has no place for its sums.
    e_.If(e_.ir().CreateICmpSLT(begin, args_.rows), [&] {
      const ops::DType type = real_ == Scalar::kF64 ? ops::DType::kFloat64 : ops::DType::kFloat32;
      const auto half = sums.begin() + static_cast<ptrdiff_t>(count);
      held_.StoreHeld(type, args_.sums, dweight_, {sums.begin(), half}, real_);
      held_.StoreHeld(type, args_.sums, dbias_, {half, sums.end()}, real_);
    });
  }

  // Returns the means of g and of g * h.
  Values MeansOf(const Row& row) {
    const llvm::IRBuilderBase::FastMathFlagGuard guard(e_.ir());
    llvm::FastMathFlags flags = e_.ir().getFastMathFlags();
    flags.setAllowReassoc();  // the lanes of a vector have sums of their own
    e_.ir().setFastMathFlags(flags);
    Value const zero = e_.Constant(real_, 0);
    Values sums = e_.Loop(
        e_.Lane(), args_.columns, e_.Lanes(), {zero, zero},
        [&](Value c, const Values& current) -> Values {
          const Element x = ElementAt(row, c);
          return {e_.ir().CreateFAdd(current[0], x.g),
                  e_.ir().CreateFAdd(current[1], e_.ir().CreateFMul(x.g, x.h))};
        },
        Emitter::LoopKind::kParallel);
    Value const count = e_.Convert(args_.columns, Scalar::kI64, real_);
    for (Value& sum : sums) sum = e_.ir().CreateFDiv(SumOverGroup(e_, sum), count);
    return sums;
  }

  void Accumulate(Value base, Value c, Value value) {
    Value const at = e_.Add(base, c);
    e_.StoreRaw(args_.sums, at, e_.ir().CreateFAdd(e_.LoadRaw(e_.TypeOf(real_), args_.sums, at), value));
  }

  const Key& key_;
  const LayerNormBackwardArguments<Emitted>& args_;
  Emitter& e_;
  RowEmission held_;
  const Scalar real_;
  Value dweight_ = nullptr, dbias_ = nullptr;  // start of the part's sums in the workspace
};

class MergeEmission {
 public:
  MergeEmission(const Key& key, const LayerNormMergeArguments<Emitted>& arguments, Emitter& emitter)
      : key_(key), args_(arguments), e_(emitter), real_(key.accumulate()) {}

  void Run() {
    Value begin = e_.Mul(e_.Group(0), args_.slice);
    Value const end = e_.Min(e_.Add(begin, args_.slice), args_.columns);
    if (e_.gpu()) return MergeGpuColumns(begin, end);
    const int width = real_ == Scalar::kF32 ? 16 : 8;
    Value const whole = e_.ir().CreateUDiv(e_.ir().CreateSub(end, begin), e_.I64(width));
    Value const middle = e_.Add(begin, e_.Mul(whole, e_.I64(width)));
    e_.Loop(begin, middle, e_.I64(width), [&](Value c) { MergeColumns(c, width); });
    begin = middle;
    e_.Loop(begin, end, e_.I64(1), [&](Value c) { MergeColumns(c, 1); });
  }

 private:
  // A slice has as many columns as a warp has lanes. Each strand of 32 lanes adds up a share of the parts.
  void MergeGpuColumns(Value begin, Value end) {
    constexpr int64_t kStrands = kGpuWarps;
    Value const own = e_.Add(begin, e_.ir().CreateAnd(e_.Lane(), e_.I64(kWarpLanes - 1)));
    Value const strand = e_.ir().CreateLShr(e_.Lane(), e_.I64(5));
    Value const column = e_.Min(own, e_.ir().CreateSub(end, e_.I64(1)));
    llvm::Type* const type = e_.TypeOf(real_);
    Value const zero = e_.Constant(real_, 0);
    const Values sums = e_.LoopUnrolled(
        strand, args_.parts, kStrands, 1, 8, {zero, zero}, [&](const Values& parts, const Values& current) {
          Values loaded, next = current;
          for (Value part : parts) {
            Value const dweight = e_.Add(e_.Mul(e_.Mul(part, e_.I64(2)), args_.columns), column);
            loaded.push_back(e_.LoadRaw(type, args_.sums, dweight));
            loaded.push_back(e_.LoadRaw(type, args_.sums, e_.Add(dweight, args_.columns)));
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
      for (size_t i = 0; i < (key_.centred ? 2 : 1); ++i) {
        Value sum = e_.LoadRaw(type, shared[i], e_.Lane());
        for (int64_t s = 1; s < kStrands; ++s) {
          Value const at = e_.Add(e_.Lane(), e_.I64(s * int64_t{kWarpLanes}));
          sum = e_.ir().CreateFAdd(sum, e_.LoadRaw(type, shared[i], at));
        }
        e_.Store(key_.types[i == 0 ? Key::kDweight : Key::kDbias], i == 0 ? args_.dweight : args_.dbias, own,
                 sum, real_);
      }
    });
  }

  void MergeColumns(Value column, int width) {
    llvm::Type* const type = e_.TypeOf(real_, width);
    Value const zero = e_.Constant(real_, 0, width);
    const Values sums = e_.Loop(
        e_.I64(0), args_.parts, e_.I64(1), {zero, zero}, [&](Value part, const Values& current) -> Values {
          Value const dweight = e_.Add(e_.Mul(e_.Mul(part, e_.I64(2)), args_.columns), column);
          Value const dbias = e_.Add(dweight, args_.columns);
          return {e_.ir().CreateFAdd(current[0], e_.LoadRaw(type, args_.sums, dweight)),
                  e_.ir().CreateFAdd(current[1], e_.LoadRaw(type, args_.sums, dbias))};
        });
    e_.Store(key_.types[Key::kDweight], args_.dweight, column, sums[0], real_, width);
    if (key_.centred) e_.Store(key_.types[Key::kDbias], args_.dbias, column, sums[1], real_, width);
  }

  const Key& key_;
  const LayerNormMergeArguments<Emitted>& args_;
  Emitter& e_;
  const Scalar real_;
};

}  // namespace

absl::Status LayerNormBackwardSkeleton::EmitBody(const Key& key,
                                                 const LayerNormBackwardArguments<Emitted>& arguments,
                                                 Emitter& e) const {
  RowsEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

absl::Status LayerNormMergeSkeleton::EmitBody(const Key& key,
                                              const LayerNormMergeArguments<Emitted>& arguments,
                                              Emitter& e) const {
  MergeEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

constinit const PlannerFactory kLayerNormBackwardPlanner = MakePlanner<LayerNormBackwardPlanner>;
constinit const PlannerFactory kRmsNormBackwardPlanner = MakePlanner<LayerNormBackwardPlanner>;

}  // namespace xpud::kernels
