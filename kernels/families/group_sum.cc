#include "kernels/families/group_sum.h"

namespace xpud::kernels {

llvm::Value* SumOverGroup(Emitter& e, llvm::Value* value) {
  if (!e.gpu()) return value;
  return e.MergeLanes({value}, [&](const Emitter::Values& x, const Emitter::Values& y) {
    return Emitter::Values{e.ir().CreateFAdd(x[0], y[0])};
  })[0];
}

}  // namespace xpud::kernels
