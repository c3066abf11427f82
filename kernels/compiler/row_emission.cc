#include "kernels/compiler/row_emission.h"

#include <cmath>

namespace xpud::kernels {

using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;

void RowEmission::ForEach(Value begin, Value end, const std::function<void(Value)>& body) {
  e_.Loop(e_.Add(begin, e_.Lane()), end, e_.Lanes(), body, Emitter::LoopKind::kParallel);
}

Value RowEmission::AddFreely(Value x, Value y) {
  Value const sum = e_.ir().CreateFAdd(x, y);
  if (auto* const add = llvm::dyn_cast<llvm::Instruction>(sum)) {
    llvm::FastMathFlags flags;
    flags.setAllowReassoc(true);
    flags.setAllowContract(true);
    flags.setNoSignedZeros(true);
    add->copyFastMathFlags(flags);
  }
  return sum;
}

Value RowEmission::Maximum(Value x, Value y) {
  llvm::Value* const call = e_.ir().CreateBinaryIntrinsic(llvm::Intrinsic::maximum, x, y);
  llvm::FastMathFlags flags;
  flags.setNoSignedZeros(true);
  if (auto* const instruction = llvm::dyn_cast<llvm::Instruction>(call))
    instruction->copyFastMathFlags(flags);
  return call;
}

Value RowEmission::Combine(Value value, const std::function<Value(Value, Value)>& combine) {
  if (!e_.gpu()) return value;
  Value const lane = e_.Lane();
  llvm::Type* const type = value->getType();
  Value const shared = e_.Shared(type, kGpuLanes);
  e_.StoreRaw(shared, lane, value);
  for (int64_t half = kGpuLanes / 2; half > 0; half /= 2) {
    e_.Barrier();
    e_.If(e_.ir().CreateICmpSLT(lane, e_.I64(half)), [&] {
      Value const low = e_.LoadRaw(type, shared, lane),
                  high = e_.LoadRaw(type, shared, e_.Add(lane, e_.I64(half)));
      e_.StoreRaw(shared, lane, combine(low, high));
    });
  }
  e_.Barrier();
  Value const result = e_.LoadRaw(type, shared, e_.I64(0));
  e_.Barrier();  // before the array is used again, by the next row
  return result;
}

Values RowEmission::Sum(Value begin, Value end, Scalar type, size_t count,
                        const std::function<Values(Value)>& body) {
  const Values zeros(count, e_.Constant(type, 0));
  Values sums = e_.Loop(
      e_.Add(begin, e_.Lane()), end, e_.Lanes(), zeros,
      [&](Value j, const Values& current) {
        Values next = body(j);
        for (size_t i = 0; i < count; ++i) next[i] = AddFreely(current[i], next[i]);
        return next;
      },
      Emitter::LoopKind::kParallel);
  for (Value& sum : sums) sum = Combine(sum, [&](Value x, Value y) { return AddFreely(x, y); });
  return sums;
}

Value RowEmission::Max(Value begin, Value end, Scalar type, const std::function<Value(Value)>& body) {
  const Values largest = e_.Loop(
      e_.Add(begin, e_.Lane()), end, e_.Lanes(), {e_.Constant(type, -INFINITY)},
      [&](Value j, const Values& current) { return Values{Maximum(current[0], body(j))}; },
      Emitter::LoopKind::kParallel);
  return Combine(largest[0], [&](Value x, Value y) { return Maximum(x, y); });
}

Value RowEmission::Math(const char* name, Value x, Scalar type) {
  return e_.CallMath(std::string(name) + (type == Scalar::kF64 ? "_f64" : "_f32"), x->getType(), {&x, 1});
}

Values RowEmission::Offsets(Value item, int rank, size_t sizes_at, size_t strides_at, int operands) {
  Values offsets(static_cast<size_t>(operands), e_.I64(0));
  for (int d = rank - 1; d >= 0; --d) {
    Value const size = e_.Arg(sizes_at + static_cast<size_t>(d));
    Value const at = d == 0 ? item : e_.ir().CreateURem(item, size);
    if (d > 0) item = e_.ir().CreateUDiv(item, size);
    for (int o = 0; o < operands; ++o) {
      Value const stride = e_.Arg(strides_at + static_cast<size_t>(o * rank + d));
      offsets[static_cast<size_t>(o)] = e_.Add(offsets[static_cast<size_t>(o)], e_.Mul(at, stride));
    }
  }
  return offsets;
}

}  // namespace xpud::kernels
