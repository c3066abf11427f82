#include "kernels/families/layer_norm.h"

#include "kernels/families/planners.h"
#include "kernels/families/row_emission.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/layer_norm.h"

namespace xpud::kernels {

// ---- planning

namespace {

// The operands of a call by LayerNormKey::Operand; nullptr if RMS norm lacks one.
std::array<const Operand*, 6> OperandsOf(const OpCall& call) {
  if (call.row->family == ops::Family::kRmsNorm) {
    const auto rms = ops::Read<ops::RmsNormCall>(call);
    return {rms.out, nullptr, rms.rstd, rms.input, rms.weight, nullptr};
  }
  const auto norm = ops::Read<ops::LayerNormCall>(call);
  return {norm.out, norm.mean, norm.rstd, norm.input, norm.weight, norm.bias};
}

double EpsilonOf(const OpCall& call) {
  return call.row->family == ops::Family::kRmsNorm ? ops::Read<ops::RmsNormCall>(call).eps
                                                   : ops::Read<ops::LayerNormCall>(call).eps;
}

}  // namespace

absl::StatusOr<Readiness> LayerNormPlanner::Plan(const OpCall& call, Workspace, LaunchList& launches) {
  const auto operands = OperandsOf(call);
  const Operand& x = *operands[LayerNormKey::kX];
  const int64_t m = x.sizes[0], n = x.sizes[1];
  if (m == 0) return Readiness::kReady;
  LayerNormKey key;
  LayerNormArguments<Planned> arguments;
  for (size_t o = 0; o < 6; ++o) {
    key.present[o] = operands[o] != nullptr && operands[o]->present;
    key.dtypes[o] = key.present[o] ? operands[o]->dtype : ops::DType::kFloat32;
    arguments.operands[o] = key.present[o] ? operands[o]->data : nullptr;
  }
  const bool gpu = cache_.target() != Target::kHost;
  if (cache_.target() == Target::kNvptx && n > 0) {
    const auto operand = [&](size_t o) { return key.present[o] ? operands[o] : &x; };
    const int block =
        RowBlock(n, {operands[0], &x, operand(LayerNormKey::kWeight), operand(LayerNormKey::kBias)}, {});
    key.rows = PlanRows(m, n, block, 1);
  }
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key));
  if (kernel == nullptr) return Readiness::kCompiling;
  const int64_t slice = gpu ? 1 : SliceOf(m, 0.3f * static_cast<float>(n) + 10, 1);
  Launch& launch = launches.Add();
  launch.Reset(kernel, CeilDiv(m, gpu ? key.rows.rows_a_group() : slice));
  if (gpu) launch.group_size = {kGpuLanes, 1, 1};
  arguments.n = n;
  arguments.rows = m;
  arguments.slice = slice;
  const ops::Number eps = ops::Number::Real(EpsilonOf(call));
  arguments.eps = &eps;
  PushArguments(key, arguments, launch);
  return Readiness::kReady;
}

// ---- emission

namespace {

using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;
using Key = LayerNormKey;

class LayerNormEmission {
 public:
  LayerNormEmission(const Key& key, const LayerNormArguments<Emitted>& arguments, Emitter& emitter)
      : key_(key), args_(arguments), e_(emitter), rows_(emitter), type_(key.accumulate()) {}

  void Run() {
    if (key_.rows.warps) e_.UseWarps();
    const bool held = e_.gpu() && key_.rows.blocks > 0;
    if (held) rows_.HoldRows(args_.n, key_.rows);
    Value const begin = e_.Mul(e_.Team(), args_.slice);
    Value const end = e_.Min(e_.Add(begin, args_.slice), args_.rows);
    e_.Loop(begin, end, e_.I64(1), [&](Value row) {
      if (held) {
        ForwardHeld(row);
      } else {
        Forward(row);
      }
    });
  }

 private:
  Value Load(size_t operand, Value index) {
    return e_.Load(key_.dtypes[operand], args_.operands[operand], index, type_);
  }
  void Store(size_t operand, Value index, Value value) {
    e_.Store(key_.dtypes[operand], args_.operands[operand], index, value, type_);
  }
  Value MulF(Value x, Value y) { return e_.ir().CreateFMul(x, y); }
  Value Sub(Value x, Value y) { return e_.ir().CreateFSub(x, y); }
  Value Count() { return e_.Convert(args_.n, Scalar::kI64, type_); }
  void StoreOnce(size_t operand, Value index, Value value) {
    if (!e_.gpu()) return Store(operand, index, value);
    e_.If(e_.ir().CreateICmpEQ(e_.Lane(), e_.I64(0)), [&] { Store(operand, index, value); });
  }

  // Two passes, for the mean and then for deviations: the row is in cache, and nothing cancels.
  void Forward(Value row) {
    Value const base = e_.Mul(row, args_.n), zero = e_.I64(0);
    const auto x = [&](Value j) { return Load(Key::kX, e_.Add(base, j)); };
    Value mean = nullptr;
    if (key_.centred()) {
      Value const sum = rows_.Sum(zero, args_.n, type_, 1, [&](Value j) { return Values{x(j)}; })[0];
      mean = e_.ir().CreateFDiv(sum, Count());
    }
    const auto centred = [&](Value j) { return key_.centred() ? Sub(x(j), mean) : x(j); };
    const Values sums = rows_.Sum(zero, args_.n, type_, key_.centred() ? 2 : 1, [&](Value j) {
      Value const d = centred(j);
      return key_.centred() ? Values{MulF(d, d), d} : Values{MulF(d, d)};
    });
    Value const rstd = RstdOf(key_.centred() ? Centred(sums[0], sums[1]) : sums[0]);
    const auto result = [&](Value j) {
      Value y = MulF(centred(j), rstd);
      if (key_.present[Key::kWeight]) y = MulF(y, Load(Key::kWeight, j));
      if (key_.present[Key::kBias]) y = e_.ir().CreateFAdd(y, Load(Key::kBias, j));
      return y;
    };
    rows_.Transform(zero, args_.n, result, [&](Value j, Value y) { Store(Key::kY, e_.Add(base, j), y); });
    if (key_.centred()) StoreOnce(Key::kMean, row, mean);
    StoreOnce(Key::kRstd, row, rstd);
  }

  // GPU: the row stays in registers. A group reads weight and bias last: they would need registers, which
  // would reduce the number of rows in flight. A warp's row is short, so its latency matters more.
  void ForwardHeld(Value row) {
    Value const base = e_.Mul(row, args_.n), zero = e_.I64(0);
    Values x = rows_.LoadHeld(key_.dtypes[Key::kX], args_.operands[Key::kX], base, type_), squares;
    std::array<Values, 6> early;
    for (const Key::Operand operand : {Key::kWeight, Key::kBias}) {
      if (!key_.rows.warps || !key_.present[operand]) continue;
      early[operand] = rows_.LoadHeld(key_.dtypes[operand], args_.operands[operand], zero, type_);
    }
    Value const mean = key_.centred() ? e_.ir().CreateFDiv(rows_.SumHeld(x), Count()) : nullptr;
    for (Value& v : x) {
      if (key_.centred()) v = Sub(v, mean);
      squares.push_back(MulF(v, v));
    }
    Value rstd = nullptr;
    if (key_.centred()) {
      const Values sums = rows_.SumsHeld({squares, x});
      rstd = RstdOf(Centred(sums[0], sums[1]));
    } else {
      rstd = RstdOf(rows_.SumHeld(squares));
    }
    rows_.ForEachBlockHeld([&](size_t c, size_t first) {
      const auto load = [&](size_t operand) {
        const auto at = early[operand].begin() + static_cast<ptrdiff_t>(first);
        if (!early[operand].empty()) return Values(at, at + static_cast<ptrdiff_t>(rows_.block()));
        if (!key_.present[operand]) return Values{};
        return rows_.LoadBlockHeld(c, key_.dtypes[operand], args_.operands[operand], zero, type_);
      };
      const Values weight = load(Key::kWeight), bias = load(Key::kBias);
      Values y;
      for (size_t i = 0; i < rows_.block(); ++i) {
        Value v = MulF(x[first + i], rstd);
        if (!weight.empty()) v = MulF(v, weight[i]);
        y.push_back(bias.empty() ? v : e_.ir().CreateFAdd(v, bias[i]));
      }
      rows_.StoreBlockHeld(c, key_.dtypes[Key::kY], args_.operands[Key::kY], base, y, type_);
    });
    if (key_.centred()) StoreOnce(Key::kMean, row, mean);
    StoreOnce(Key::kRstd, row, rstd);
  }

  // Returns the squares of deviations from the mean, given those from its rounded value and their sum: far
  // from zero, the rounding is not small beside the deviations.
  Value Centred(Value squares, Value deviations) {
    Value const rounding = e_.ir().CreateFDiv(deviations, Count());
    return Sub(squares, MulF(deviations, rounding));
  }
  Value RstdOf(Value squares) {
    Value const variance = e_.ir().CreateFDiv(squares, Count());
    Value const root =
        e_.ir().CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, e_.ir().CreateFAdd(variance, args_.eps));
    return e_.ir().CreateFDiv(e_.Constant(type_, 1), root);
  }

  const Key& key_;
  const LayerNormArguments<Emitted>& args_;
  Emitter& e_;
  RowEmission rows_;
  const Scalar type_;
};

}  // namespace

absl::Status LayerNormSkeleton::EmitBody(const LayerNormKey& key,
                                         const LayerNormArguments<Emitted>& arguments, Emitter& e) const {
  LayerNormEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

constinit const PlannerFactory kLayerNormPlanner = MakePlanner<LayerNormPlanner>;
constinit const PlannerFactory kRmsNormPlanner = MakePlanner<LayerNormPlanner>;

}  // namespace xpud::kernels
