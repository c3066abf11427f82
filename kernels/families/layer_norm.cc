#include "kernels/families/layer_norm.h"

#include "kernels/families/immediate.h"
#include "kernels/families/row_emission.h"
#include "kernels/families/skeleton_number.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

// ---- planning

namespace {

void SetOperand(LayerNormKey& key, size_t at, const Operand& operand) {
  key.present[at] = operand.present;
  key.dtypes[at] = operand.present ? operand.dtype : ops::DType::kFloat32;
}

void PushPointer(const Operand& operand, Launch& launch) {
  if (operand.present) launch.Push(operand.data);
}

}  // namespace

absl::StatusOr<Readiness> LayerNormPlanner::Plan(const OpCall& call, Workspace, LaunchList& launches) {
  const Operand& x = call.inputs[0];
  const int64_t m = x.sizes[0], n = x.sizes[1];
  if (m == 0) return Readiness::kReady;
  LayerNormKey key;
  for (size_t o = 0; o < 3; ++o) SetOperand(key, o, call.outputs[o]);
  for (size_t i = 0; i < 3; ++i) SetOperand(key, 3 + i, call.inputs[i]);
  const bool gpu = cache_.target() != Target::kHost;
  if (cache_.target() == Target::kNvptx && n > 0) {
    const auto operand = [&](size_t i) { return call.inputs[i].present ? &call.inputs[i] : &x; };
    key.rows = PlanRows(m, n, RowBlock(n, {&call.outputs[0], &x, operand(1), operand(2)}, {}), 1);
  }
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key.Pack()));
  if (kernel == nullptr) return Readiness::kCompiling;
  const int64_t slice = gpu ? 1 : SliceOf(m, 0.3f * static_cast<float>(n) + 10, 1);
  Launch& launch = launches.Add();
  launch.Reset(kernel, static_cast<uint32_t>(CeilDiv(m, gpu ? key.rows.rows_a_group() : slice)));
  if (gpu) launch.group_size = {kGpuLanes, 1, 1};
  for (const Operand& output : call.outputs) launch.Push(output.data);
  for (const Operand& input : call.inputs) PushPointer(input, launch);
  for (const int64_t scalar : {n, m, slice}) launch.Push(scalar);
  PushImmediate(call.attributes[0], x.dtype, launch);
  return Readiness::kReady;
}

// ---- emission

KernelKey LayerNormKey::Pack() const {
  KeyWriter writer(static_cast<uint8_t>(SkeletonNumber::kLayerNorm));
  for (size_t o = 0; o < dtypes.size(); ++o) {
    writer.Put(static_cast<uint64_t>(dtypes[o]), 4);
    writer.Put(present[o], 1);
  }
  rows.Pack(writer);
  return writer.key();
}

LayerNormKey LayerNormKey::Unpack(const KernelKey& packed) {
  KeyReader reader(packed);
  LayerNormKey key;
  for (size_t o = 0; o < key.dtypes.size(); ++o) {
    key.dtypes[o] = static_cast<ops::DType>(reader.Take(4));
    key.present[o] = reader.Take(1) != 0;
  }
  key.rows = RowPlan::Unpack(reader);
  return key;
}

namespace {

using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;

class LayerNormEmission {
 public:
  LayerNormEmission(const LayerNormKey& key, Emitter& emitter)
      : key_(key), e_(emitter), rows_(emitter), type_(AccumulateOf(key.dtypes[3])) {}

  void Run(const std::string& name) {
    std::vector<ArgType> args;
    for (size_t o = 0; o < key_.dtypes.size(); ++o) {
      at_[o] = args.size();
      if (key_.present[o]) args.push_back(ArgType::kPointer);
    }
    scalars_at_ = args.size();
    args.resize(scalars_at_ + 3, ArgType::kI64);
    args.push_back(ImmediateArg(type_));
    e_.Begin(name, args);
    if (key_.rows.warps) e_.UseWarps();
    const bool held = e_.gpu() && key_.rows.blocks > 0;
    if (held) rows_.HoldRows(N(), key_.rows);
    Value const begin = e_.Mul(e_.Team(), SliceSize());
    Value const end = e_.Min(e_.Add(begin, SliceSize()), e_.Arg(scalars_at_ + 1));
    e_.Loop(begin, end, e_.I64(1), [&](Value row) {
      if (held) {
        ForwardHeld(row);
      } else {
        Forward(row);
      }
    });
  }

 private:
  Value N() const { return e_.Arg(scalars_at_); }
  Value SliceSize() const { return e_.Arg(scalars_at_ + 2); }
  Value Load(size_t operand, Value index) {
    return e_.Load(key_.dtypes[operand], e_.Arg(at_[operand]), index, type_);
  }
  void Store(size_t operand, Value index, Value value) {
    e_.Store(key_.dtypes[operand], e_.Arg(at_[operand]), index, value, type_);
  }
  Value MulF(Value x, Value y) { return e_.ir().CreateFMul(x, y); }
  Value Sub(Value x, Value y) { return e_.ir().CreateFSub(x, y); }
  Value Count() { return e_.Convert(N(), Scalar::kI64, type_); }
  void StoreOnce(size_t operand, Value index, Value value) {
    if (!e_.gpu()) return Store(operand, index, value);
    e_.If(e_.ir().CreateICmpEQ(e_.Lane(), e_.I64(0)), [&] { Store(operand, index, value); });
  }

  // Two passes, mean and then deviations: the row is in cache, and nothing cancels.
  void Forward(Value row) {
    Value const base = e_.Mul(row, N()), zero = e_.I64(0);
    const auto x = [&](Value j) { return Load(3, e_.Add(base, j)); };
    Value const sum = rows_.Sum(zero, N(), type_, 1, [&](Value j) { return Values{x(j)}; })[0];
    Value const mean = e_.ir().CreateFDiv(sum, Count());
    Value const squares = rows_.Sum(zero, N(), type_, 1, [&](Value j) {
      Value const d = Sub(x(j), mean);
      return Values{MulF(d, d)};
    })[0];
    Value const rstd = RstdOf(squares);
    rows_.ForEach(zero, N(), [&](Value j) {
      Value y = MulF(Sub(x(j), mean), rstd);
      if (key_.present[4]) y = MulF(y, Load(4, j));
      if (key_.present[5]) y = e_.ir().CreateFAdd(y, Load(5, j));
      Store(0, e_.Add(base, j), y);
    });
    StoreOnce(1, row, mean);
    StoreOnce(2, row, rstd);
  }

  // GPU: the row stays in registers. A group's weight and bias are read last: they would cost registers, and
  // with them rows that are under way at the same time. A warp's row is short, and its latency counts.
  void ForwardHeld(Value row) {
    Value const base = e_.Mul(row, N()), zero = e_.I64(0);
    Values x = rows_.LoadHeld(key_.dtypes[3], e_.Arg(at_[3]), base, type_), squares;
    std::array<Values, 6> early;
    for (const size_t operand : {size_t{4}, size_t{5}}) {
      if (!key_.rows.warps || !key_.present[operand]) continue;
      early[operand] = rows_.LoadHeld(key_.dtypes[operand], e_.Arg(at_[operand]), zero, type_);
    }
    Value const mean = e_.ir().CreateFDiv(rows_.SumHeld(x), Count());
    for (Value& v : x) {
      v = Sub(v, mean);
      squares.push_back(MulF(v, v));
    }
    Value const rstd = RstdOf(rows_.SumHeld(squares));
    rows_.ForEachBlockHeld([&](size_t c, size_t first) {
      const auto load = [&](size_t operand) {
        const auto at = early[operand].begin() + static_cast<ptrdiff_t>(first);
        if (!early[operand].empty()) return Values(at, at + static_cast<ptrdiff_t>(rows_.block()));
        if (!key_.present[operand]) return Values{};
        return rows_.LoadBlockHeld(c, key_.dtypes[operand], e_.Arg(at_[operand]), zero, type_);
      };
      const Values weight = load(4), bias = load(5);
      Values y;
      for (size_t i = 0; i < rows_.block(); ++i) {
        Value v = MulF(x[first + i], rstd);
        if (!weight.empty()) v = MulF(v, weight[i]);
        y.push_back(bias.empty() ? v : e_.ir().CreateFAdd(v, bias[i]));
      }
      rows_.StoreBlockHeld(c, key_.dtypes[0], e_.Arg(at_[0]), base, y, type_);
    });
    StoreOnce(1, row, mean);
    StoreOnce(2, row, rstd);
  }

  Value RstdOf(Value squares) {
    Value const variance = e_.ir().CreateFDiv(squares, Count());
    Value const root = e_.ir().CreateUnaryIntrinsic(llvm::Intrinsic::sqrt,
                                                    e_.ir().CreateFAdd(variance, e_.Arg(scalars_at_ + 3)));
    return e_.ir().CreateFDiv(e_.Constant(type_, 1), root);
  }

  const LayerNormKey& key_;
  Emitter& e_;
  RowEmission rows_;
  const Scalar type_;
  std::array<size_t, 6> at_{};
  size_t scalars_at_ = 0;
};

}  // namespace

absl::Status LayerNormSkeleton::Emit(const KernelKey& packed, const std::string& name,
                                     Emitter& emitter) const {
  const LayerNormKey key = LayerNormKey::Unpack(packed);
  LayerNormEmission(key, emitter).Run(name);
  return absl::OkStatus();
}

}  // namespace xpud::kernels
