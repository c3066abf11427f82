// Emitter: groups and lanes of a GPU, and what lanes exchange.
#include "kernels/compiler/emitter.h"

#include "llvm/IR/IntrinsicsNVPTX.h"
#include "proto/base/check.h"

namespace xpud::kernels {

using llvm::Type;

Emitter::Value Emitter::BuiltinIndex(llvm::Intrinsic::ID nvptx, const char* spirv, int axis) {
  if (target_ == Target::kNvptx)
    return ir_.CreateZExt(ir_.CreateIntrinsic(ir_.getInt32Ty(), nvptx, {}), ir_.getInt64Ty());
  auto* const type = llvm::FunctionType::get(ir_.getInt64Ty(), {ir_.getInt32Ty()}, false);
  llvm::FunctionCallee callee = module_->getOrInsertFunction(spirv, type);
  llvm::cast<llvm::Function>(callee.getCallee())->setCallingConv(llvm::CallingConv::SPIR_FUNC);
  llvm::CallInst* const call = ir_.CreateCall(callee, {ir_.getInt32(static_cast<uint32_t>(axis))});
  call->setCallingConv(llvm::CallingConv::SPIR_FUNC);
  return call;
}

Emitter::Value Emitter::Group(int axis) {
  if (!gpu()) {
    auto* const raw =
        ir_.CreateLoad(ir_.getInt32Ty(),
                       ir_.CreateConstInBoundsGEP1_64(ir_.getInt32Ty(), group_, static_cast<uint64_t>(axis)));
    return ir_.CreateZExt(raw, ir_.getInt64Ty());
  }
  const llvm::Intrinsic::ID ids[] = {llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x,
                                     llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_y,
                                     llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_z};
  return BuiltinIndex(ids[axis], "_Z12get_group_idj", axis);
}

Emitter::Value Emitter::Thread() {
  return BuiltinIndex(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x, "_Z12get_local_idj", 0);
}

Emitter::Value Emitter::Lane() {
  if (!gpu()) return I64(0);
  return warps_ ? ir_.CreateAnd(Thread(), I64(kWarpLanes - 1)) : Thread();
}

Emitter::Value Emitter::Lanes() { return I64(!gpu() ? 1 : warps_ ? kWarpLanes : kGpuLanes); }

Emitter::Value Emitter::Team() {
  if (!warps_) return Group(0);
  return Add(Mul(Group(0), I64(kGpuWarps)), ir_.CreateLShr(Thread(), I64(5)));
}

void Emitter::MakeRoomFor(int groups) {
  XPUD_CHECK(target_ == Target::kNvptx);
  function_->addFnAttr("nvvm.maxntid", std::to_string(kGpuLanes));
  function_->addFnAttr("nvvm.minctasm", std::to_string(groups));
}

Emitter::Value Emitter::ShuffleXor(Value value, uint32_t mask) {
  XPUD_CHECK(target_ == Target::kNvptx);
  Type *const type = value->getType(), *const i32 = ir_.getInt32Ty();
  const auto shuffle = [&](Value word) -> Value {
    return ir_.CreateIntrinsic(i32, llvm::Intrinsic::nvvm_shfl_sync_bfly_i32,
                               {ir_.getInt32(~0u), word, ir_.getInt32(mask), ir_.getInt32(kWarpLanes - 1)});
  };
  const unsigned bits = type->getScalarSizeInBits();
  Value const integer = ir_.CreateBitCast(value, ir_.getIntNTy(bits));
  if (bits <= 32) {
    Value const word = shuffle(ir_.CreateZExt(integer, i32));
    return ir_.CreateBitCast(ir_.CreateTrunc(word, ir_.getIntNTy(bits)), type);
  }
  Value const low = shuffle(ir_.CreateTrunc(integer, i32));
  Value const high = shuffle(ir_.CreateTrunc(ir_.CreateLShr(integer, 32), i32));
  Type* const i64 = ir_.getInt64Ty();
  return ir_.CreateBitCast(
      ir_.CreateOr(ir_.CreateZExt(low, i64), ir_.CreateShl(ir_.CreateZExt(high, i64), 32)), type);
}

Emitter::Value Emitter::Ballot(Value condition) {
  XPUD_CHECK(target_ == Target::kNvptx);
  return ir_.CreateIntrinsic(ir_.getInt32Ty(), llvm::Intrinsic::nvvm_vote_ballot_sync,
                             {ir_.getInt32(~0u), condition});
}

Emitter::Value Emitter::ShuffleFrom(Value value, Value lane) {
  XPUD_CHECK(target_ == Target::kNvptx);
  return ir_.CreateIntrinsic(ir_.getInt32Ty(), llvm::Intrinsic::nvvm_shfl_sync_idx_i32,
                             {ir_.getInt32(~0u), value, lane, ir_.getInt32(kWarpLanes - 1)});
}

void Emitter::WarpBarrier() {
  XPUD_CHECK(target_ == Target::kNvptx);
  ir_.CreateIntrinsic(ir_.getVoidTy(), llvm::Intrinsic::nvvm_bar_warp_sync, {ir_.getInt32(~0u)});
}

Emitter::Values Emitter::MergeLanes(const Values& values,
                                    const std::function<Values(const Values&, const Values&)>& merge,
                                    bool once) {
  const auto butterfly = [&](Values state, uint32_t lanes) {
    for (uint32_t mask = lanes / 2; mask > 0; mask /= 2) {
      Values other;
      for (Value v : state) other.push_back(ShuffleXor(v, mask));
      state = merge(state, other);
    }
    return state;
  };
  const bool shuffles = target_ == Target::kNvptx;
  Values state = shuffles ? butterfly(values, kWarpLanes) : values;
  if (warps_) return state;
  Value const thread = Thread();
  Values shared;
  const auto load = [&](Value at) {
    Values loaded;
    for (size_t c = 0; c < shared.size(); ++c) loaded.push_back(LoadRaw(state[c]->getType(), shared[c], at));
    return loaded;
  };
  const auto store = [&](Value at, const Values& stored) {
    for (size_t c = 0; c < shared.size(); ++c) StoreRaw(shared[c], at, stored[c]);
  };
  for (Value v : state) shared.push_back(Shared(v->getType(), shuffles ? kGpuWarps : kGpuLanes));
  if (shuffles) {
    // Each warp stores its state; then every warp merges all of these states.
    Value const in_warp = ir_.CreateAnd(thread, I64(kWarpLanes - 1));
    If(ir_.CreateICmpEQ(in_warp, I64(0)), [&] { store(ir_.CreateLShr(thread, I64(5)), state); });
    Barrier();
    state = butterfly(load(ir_.CreateAnd(thread, I64(kGpuWarps - 1))), kGpuWarps);
  } else {
    store(thread, state);
    for (int64_t half = kGpuLanes / 2; half > 0; half /= 2) {
      Barrier();
      If(ir_.CreateICmpSLT(thread, I64(half)),
         [&] { store(thread, merge(load(thread), load(Add(thread, I64(half))))); });
    }
    Barrier();
    state = load(I64(0));
  }
  if (!once) Barrier();  // before the arrays are reused
  return state;
}

void Emitter::Barrier() {
  if (warps_) return;
  if (target_ == Target::kNvptx) {
    ir_.CreateIntrinsic(ir_.getVoidTy(), llvm::Intrinsic::nvvm_barrier_cta_sync_aligned_all,
                        {ir_.getInt32(0)});
  } else if (target_ == Target::kSpirv) {
    auto* const type = llvm::FunctionType::get(ir_.getVoidTy(), {ir_.getInt32Ty()}, false);
    llvm::FunctionCallee callee = module_->getOrInsertFunction("_Z7barrierj", type);
    llvm::cast<llvm::Function>(callee.getCallee())->setCallingConv(llvm::CallingConv::SPIR_FUNC);
    llvm::cast<llvm::Function>(callee.getCallee())->addFnAttr(llvm::Attribute::Convergent);
    ir_.CreateCall(callee, {ir_.getInt32(1)})->setCallingConv(llvm::CallingConv::SPIR_FUNC);
  }
}

}  // namespace xpud::kernels
