#include "kernels/compiler/group_sum.h"

namespace xpud::kernels {

llvm::Value* SumOverGroup(Emitter& e, Scalar scalar, llvm::Value* value) {
  if (!e.gpu()) return value;
  llvm::Type* const type = e.TypeOf(scalar);
  llvm::Value* const shared = e.Shared(type, kGpuLanes);
  llvm::Value* const lane = e.Lane();
  e.StoreRaw(shared, lane, value);
  for (int64_t half = kGpuLanes / 2; half > 0; half /= 2) {
    e.Barrier();
    e.If(e.ir().CreateICmpSLT(lane, e.I64(half)), [&] {
      llvm::Value* const other = e.LoadRaw(type, shared, e.Add(lane, e.I64(half)));
      e.StoreRaw(shared, lane, e.ir().CreateFAdd(e.LoadRaw(type, shared, lane), other));
    });
  }
  e.Barrier();
  llvm::Value* const sum = e.LoadRaw(type, shared, e.I64(0));
  e.Barrier();  // before the next sum overwrites the array
  return sum;
}

}  // namespace xpud::kernels
