#include "kernels/layer_norm/layer_norm_skeleton.h"

#include "kernels/compiler/row_emission.h"
#include "kernels/skeleton_number.h"

namespace xpud::kernels {

KernelKey LayerNormKey::Pack() const {
  KeyWriter writer(static_cast<uint8_t>(SkeletonNumber::kLayerNorm));
  for (size_t o = 0; o < dtypes.size(); ++o) {
    writer.Put(static_cast<uint64_t>(dtypes[o]), 4);
    writer.Put(present[o], 1);
  }
  return writer.key();
}

LayerNormKey LayerNormKey::Unpack(const KernelKey& packed) {
  KeyReader reader(packed);
  LayerNormKey key;
  for (size_t o = 0; o < key.dtypes.size(); ++o) {
    key.dtypes[o] = static_cast<ops::DType>(reader.Take(4));
    key.present[o] = reader.Take(1) != 0;
  }
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
    Value const begin = e_.Mul(e_.Group(0), SliceSize());
    Value const end = e_.Min(e_.Add(begin, SliceSize()), e_.Arg(scalars_at_ + 1));
    e_.Loop(begin, end, e_.I64(1), [&](Value row) { Forward(row); });
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
    Value const variance = e_.ir().CreateFDiv(squares, Count());
    Value const root = e_.ir().CreateUnaryIntrinsic(llvm::Intrinsic::sqrt,
                                                    e_.ir().CreateFAdd(variance, e_.Arg(scalars_at_ + 3)));
    Value const rstd = e_.ir().CreateFDiv(e_.Constant(type_, 1), root);
    rows_.ForEach(zero, N(), [&](Value j) {
      Value y = MulF(Sub(x(j), mean), rstd);
      if (key_.present[4]) y = MulF(y, Load(4, j));
      if (key_.present[5]) y = e_.ir().CreateFAdd(y, Load(5, j));
      Store(0, e_.Add(base, j), y);
    });
    StoreOnce(1, row, mean);
    StoreOnce(2, row, rstd);
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
