#include "kernels/compiler/emitter.h"

#include <algorithm>

#include "kernels/api/op_call.h"
#include "llvm/IR/CFG.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "proto/base/check.h"

namespace xpud::kernels {

using llvm::Type;
using ops::DType;

namespace {

unsigned GlobalSpace(Target target) { return target == Target::kHost ? 0 : 1; }

const char* TripleOf(Target target) {
  if (target == Target::kNvptx) return "nvptx64-nvidia-cuda";
  return target == Target::kSpirv ? "spirv64v1.2-unknown-unknown" : "x86_64-unknown-linux-gnu";
}

}  // namespace

Emitter::Emitter(Target target, llvm::LLVMContext& context)
    : target_(target),
      context_(context),
      module_(std::make_unique<llvm::Module>("xpud", context)),
      ir_(context) {
  module_->setTargetTriple(llvm::Triple(TripleOf(target)));
}

void Emitter::Open(const std::string& name, std::span<const ArgType> args) {
  name_ = name;
  arg_types_.assign(args.begin(), args.end());
  Type* const pointer = llvm::PointerType::get(context_, 0);
  std::vector<Type*> types;
  const auto type_of = [&](ArgType a) -> Type* {
    if (a == ArgType::kPointer) return llvm::PointerType::get(context_, GlobalSpace(target_));
    if (a == ArgType::kI64) return ir_.getInt64Ty();
    return a == ArgType::kF32 ? ir_.getFloatTy() : ir_.getDoubleTy();
  };
  if (gpu()) {
    for (const ArgType a : args) types.push_back(type_of(a));
  } else {
    types.assign(3, pointer);
  }
  function_ = llvm::Function::Create(llvm::FunctionType::get(ir_.getVoidTy(), types, false),
                                     llvm::GlobalValue::ExternalLinkage, name, *module_);
  if (target_ == Target::kNvptx) function_->setCallingConv(llvm::CallingConv::PTX_Kernel);
  if (target_ == Target::kSpirv) function_->setCallingConv(llvm::CallingConv::SPIR_KERNEL);
  function_->addFnAttr(llvm::Attribute::NoUnwind);
  ir_.SetInsertPoint(llvm::BasicBlock::Create(context_, "entry", function_));
  llvm::FastMathFlags flags;
  flags.setAllowContract(true);
  ir_.setFastMathFlags(flags);
  if (gpu()) {
    for (llvm::Argument& a : function_->args()) args_.push_back(&a);
    return;
  }
  llvm::MDNode* const empty = llvm::MDNode::get(context_, {});
  for (size_t i = 0; i < args.size(); ++i) {
    auto* const slot =
        ir_.CreateLoad(pointer, ir_.CreateConstInBoundsGEP1_64(pointer, function_->getArg(0), i));
    slot->setMetadata(llvm::LLVMContext::MD_invariant_load, empty);
    auto* const value = ir_.CreateLoad(type_of(args[i]), slot);
    value->setMetadata(llvm::LLVMContext::MD_invariant_load, empty);
    args_.push_back(value);
  }
  group_ = function_->getArg(1);
  scratch_ = function_->getArg(2);
}

std::unique_ptr<llvm::Module> Emitter::Finish() {
  ir_.CreateRetVoid();
  if (!gpu()) {
    std::vector<uint32_t> sizes;
    for (const ArgType a : arg_types_) sizes.push_back(BytesOf(a));
    if (sizes.empty()) sizes.push_back(0);
    auto* const data = llvm::ConstantDataArray::get(context_, sizes);
    new llvm::GlobalVariable(*module_, data->getType(), true, llvm::GlobalValue::ExternalLinkage, data,
                             name_ + ".arg_sizes");
  }
  return std::move(module_);
}

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

Emitter::Values Emitter::Loop(Value begin, Value end, Value step, const Values& carried,
                              const std::function<Values(Value, const Values&)>& body, LoopKind kind) {
  auto* const before = ir_.GetInsertBlock();
  auto* const header = llvm::BasicBlock::Create(context_, "loop", function_);
  auto* const inside = llvm::BasicBlock::Create(context_, "body", function_);
  auto* const after = llvm::BasicBlock::Create(context_, "after", function_);
  ir_.CreateBr(header);
  ir_.SetInsertPoint(header);
  llvm::PHINode* const index = ir_.CreatePHI(begin->getType(), 2);
  index->addIncoming(begin, before);
  std::vector<llvm::PHINode*> phis;
  Values current;
  for (Value initial : carried) {
    phis.push_back(ir_.CreatePHI(initial->getType(), 2));
    phis.back()->addIncoming(initial, before);
    current.push_back(phis.back());
  }
  ir_.CreateCondBr(ir_.CreateICmpSLT(index, end), inside, after);
  ir_.SetInsertPoint(inside);
  const bool parallel = kind == LoopKind::kParallel;
  if (parallel) access_groups_.push_back(llvm::MDNode::getDistinct(context_, {}));
  const Values next = body(index, current);
  XPUD_CHECK(next.size() == carried.size());
  Value const advanced = ir_.CreateNSWAdd(index, step);
  auto* const last = ir_.GetInsertBlock();
  index->addIncoming(advanced, last);
  for (size_t i = 0; i < next.size(); ++i) phis[i]->addIncoming(next[i], last);
  llvm::BranchInst* const back = ir_.CreateBr(header);
  llvm::SmallVector<llvm::Metadata*, 3> properties = {nullptr};
  properties.push_back(
      llvm::MDNode::get(context_, {llvm::MDString::get(context_, "llvm.loop.mustprogress")}));
  if (parallel) {
    properties.push_back(llvm::MDNode::get(
        context_, {llvm::MDString::get(context_, "llvm.loop.parallel_accesses"), access_groups_.back()}));
    access_groups_.pop_back();
  }
  llvm::MDNode* const loop = llvm::MDNode::getDistinct(context_, properties);
  loop->replaceOperandWith(0, loop);
  back->setMetadata(llvm::LLVMContext::MD_loop, loop);
  ir_.SetInsertPoint(after);
  return current;
}

void Emitter::Loop(Value begin, Value end, Value step, const std::function<void(Value)>& body,
                   LoopKind kind) {
  Loop(
      begin, end, step, {},
      [&](Value i, const Values&) {
        body(i);
        return Values{};
      },
      kind);
}

Emitter::Values Emitter::LoopUnrolled(Value begin, Value end, int64_t stride, int64_t length, int64_t count,
                                      Values carried,
                                      const std::function<Values(const Values&, const Values&)>& body) {
  Value next = begin;
  for (const int64_t together : {count, int64_t{1}}) {
    Value const last = ir_.CreateSub(end, I64((together - 1) * stride + length - 1));
    carried.push_back(next);
    carried = Loop(next, last, I64(together * stride), carried, [&](Value i, const Values& current) {
      Values indices;
      for (int64_t u = 0; u < together; ++u) indices.push_back(Add(i, I64(u * stride)));
      Values after = body(indices, {current.begin(), current.end() - 1});
      after.push_back(Add(i, I64(together * stride)));
      return after;
    });
    next = carried.back();
    carried.pop_back();
  }
  return carried;
}

Emitter::Values Emitter::While(const Values& carried, const std::function<Value(const Values&)>& condition,
                               const std::function<Values(const Values&)>& body) {
  auto* const before = ir_.GetInsertBlock();
  auto* const header = llvm::BasicBlock::Create(context_, "while", function_);
  auto* const inside = llvm::BasicBlock::Create(context_, "body", function_);
  auto* const after = llvm::BasicBlock::Create(context_, "after", function_);
  ir_.CreateBr(header);
  ir_.SetInsertPoint(header);
  std::vector<llvm::PHINode*> phis;
  for (Value initial : carried) {
    phis.push_back(ir_.CreatePHI(initial->getType(), 2));
    phis.back()->addIncoming(initial, before);
  }
  const Values current(phis.begin(), phis.end());
  ir_.CreateCondBr(condition(current), inside, after);
  ir_.SetInsertPoint(inside);
  const Values next = body(current);
  XPUD_CHECK(next.size() == carried.size());
  auto* const last = ir_.GetInsertBlock();
  for (size_t i = 0; i < next.size(); ++i) phis[i]->addIncoming(next[i], last);
  ir_.CreateBr(header);
  ir_.SetInsertPoint(after);
  return current;
}

void Emitter::If(Value condition, const std::function<void()>& then) {
  auto* const inside = llvm::BasicBlock::Create(context_, "then", function_);
  auto* const after = llvm::BasicBlock::Create(context_, "after", function_);
  ir_.CreateCondBr(condition, inside, after);
  ir_.SetInsertPoint(inside);
  then();
  ir_.CreateBr(after);
  ir_.SetInsertPoint(after);
}

Emitter::Values Emitter::Where(Value condition, const Values& otherwise,
                               const std::function<Values()>& then) {
  auto* const before = ir_.GetInsertBlock();
  Values values;
  If(condition, [&] { values = then(); });
  XPUD_CHECK(values.size() == otherwise.size());
  auto* const after = ir_.GetInsertBlock();
  // `If` has just made `after`: its predecessors are `before` and the block in which then() ended.
  for (size_t i = 0; i < values.size(); ++i) {
    llvm::PHINode* const either = ir_.CreatePHI(values[i]->getType(), 2);
    for (auto* const from : llvm::predecessors(after))
      either->addIncoming(from == before ? otherwise[i] : values[i], from);
    values[i] = either;
  }
  return values;
}

Type* Emitter::TypeOf(Scalar scalar, int width) {
  Type* type = nullptr;
  switch (scalar) {
    case Scalar::kBool:
      type = ir_.getInt1Ty();
      break;
    case Scalar::kU8:
    case Scalar::kI8:
      type = ir_.getInt8Ty();
      break;
    case Scalar::kI16:
      type = ir_.getInt16Ty();
      break;
    case Scalar::kI32:
      type = ir_.getInt32Ty();
      break;
    case Scalar::kI64:
      type = ir_.getInt64Ty();
      break;
    case Scalar::kF32:
      type = ir_.getFloatTy();
      break;
    case Scalar::kF64:
      type = ir_.getDoubleTy();
      break;
  }
  return width > 1 ? llvm::FixedVectorType::get(type, static_cast<unsigned>(width)) : type;
}

Type* Emitter::StorageOf(DType type) {
  switch (type) {
    case DType::kFloat16:
      return ir_.getHalfTy();
    case DType::kBFloat16:
      return ir_.getInt16Ty();
    case DType::kFloat32:
      return ir_.getFloatTy();
    case DType::kFloat64:
      return ir_.getDoubleTy();
    default:
      return ir_.getIntNTy(static_cast<unsigned>(ops::SizeOf(type) * 8));
  }
}

Emitter::Value Emitter::Constant(Scalar scalar, double value, int width) {
  Type* const type = TypeOf(scalar, width);
  if (IsFloat(scalar)) return llvm::ConstantFP::get(type, value);
  return llvm::ConstantInt::getSigned(type, static_cast<int64_t>(value));
}

Emitter::Value Emitter::IntegerConstant(Scalar scalar, int64_t value, int width) {
  Type* const type = TypeOf(scalar, width);
  if (IsFloat(scalar)) return llvm::ConstantFP::get(type, static_cast<double>(value));
  const unsigned bits = type->getScalarSizeInBits();
  return llvm::ConstantInt::get(
      type, llvm::APInt(bits, static_cast<uint64_t>(value), false, /*implicitTrunc=*/true));
}

namespace {

bool IsUnsigned(Scalar scalar) { return scalar == Scalar::kBool || scalar == Scalar::kU8; }

// Disables contraction, so that two consecutive roundings (f64 to f32 to f16) stay two: a single one would be
// a library call.
Emitter::Value Plain(Emitter::Value value) {
  if (auto* const instruction = llvm::dyn_cast<llvm::Instruction>(value))
    instruction->copyFastMathFlags(llvm::FastMathFlags());
  return value;
}

}  // namespace

Emitter::Value Emitter::Convert(Value value, Scalar from, Scalar to) {
  if (from == to) return value;
  const auto* const vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  const int width = vector ? static_cast<int>(vector->getNumElements()) : 1;
  Type* const target = TypeOf(to, width);
  if (to == Scalar::kBool) {
    Value const zero = llvm::Constant::getNullValue(value->getType());
    return IsFloat(from) ? ir_.CreateFCmpUNE(value, zero) : ir_.CreateICmpNE(value, zero);
  }
  if (IsFloat(from)) {
    if (IsFloat(to)) return Plain(ir_.CreateFPCast(value, target));
    // Out-of-range values are unspecified, as in ATen, but not undefined: the result is frozen. Small types
    // go through i32.
    if (to == Scalar::kI64 || to == Scalar::kI32) return ir_.CreateFreeze(ir_.CreateFPToSI(value, target));
    return ir_.CreateTrunc(ir_.CreateFreeze(ir_.CreateFPToSI(value, TypeOf(Scalar::kI32, width))), target);
  }
  if (IsFloat(to))
    return IsUnsigned(from) ? ir_.CreateUIToFP(value, target) : ir_.CreateSIToFP(value, target);
  return ir_.CreateIntCast(value, target, !IsUnsigned(from));
}

Emitter::Value Emitter::Min(Value a, Value b) { return ir_.CreateSelect(ir_.CreateICmpSLT(a, b), a, b); }

Emitter::Value Emitter::CeilDiv(Value a, Value b) {
  return ir_.CreateUDiv(Add(a, ir_.CreateSub(b, I64(1))), b);
}

Emitter::Value Emitter::Address(DType type, Value base, Value index) {
  return ir_.CreateInBoundsGEP(StorageOf(type), base, index);
}

void Emitter::MarkAccess(llvm::Instruction* access) {
  if (access_groups_.empty()) return;
  llvm::MDNode* group = access_groups_.back();
  if (access_groups_.size() > 1) {
    const std::vector<llvm::Metadata*> groups(access_groups_.begin(), access_groups_.end());
    group = llvm::MDNode::get(context_, groups);
  }
  access->setMetadata(llvm::LLVMContext::MD_access_group, group);
}

Emitter::Value Emitter::FromStorage(DType type, Value raw, Scalar as) {
  if (type == DType::kBool) {
    return Convert(ir_.CreateICmpNE(raw, llvm::Constant::getNullValue(raw->getType())), Scalar::kBool, as);
  }
  if (!ops::IsFloating(type) || ops::SizeOf(type) > 2) return Convert(raw, ScalarOf(type), as);
  const auto* const vector = llvm::dyn_cast<llvm::FixedVectorType>(raw->getType());
  const int width = vector ? static_cast<int>(vector->getNumElements()) : 1;
  Type* const f32 = TypeOf(Scalar::kF32, width);
  Value value = nullptr;
  if (type == DType::kBFloat16) {
    Value const wide = ir_.CreateZExt(raw, TypeOf(Scalar::kI32, width));
    value = ir_.CreateBitCast(ir_.CreateShl(wide, 16), f32);
  } else {
    value = Plain(ir_.CreateFPExt(raw, f32));
  }
  return Convert(value, Scalar::kF32, as);
}

Emitter::Value Emitter::ToStorage(DType type, Value value, Scalar from) {
  const auto* const vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  const int width = vector ? static_cast<int>(vector->getNumElements()) : 1;
  if (type == DType::kBool)
    return ir_.CreateZExt(Convert(value, from, Scalar::kBool), TypeOf(Scalar::kU8, width));
  value = Convert(value, from, ScalarOf(type));
  if (type == DType::kFloat16) {
    Type* half = ir_.getHalfTy();
    if (width > 1) half = llvm::FixedVectorType::get(half, static_cast<unsigned>(width));
    return Plain(ir_.CreateFPTrunc(value, half));
  }
  if (type != DType::kBFloat16) return value;
  if (target_ == Target::kNvptx && width == 1)
    return ir_.CreateBitCast(RoundToBrain(value), ir_.getInt16Ty());
  // Rounds to nearest even with integer operations, which every target has. NaN stays NaN.
  Type* const i32 = TypeOf(Scalar::kI32, width);
  Value const bits = ir_.CreateBitCast(value, i32);
  Value const odd = ir_.CreateAnd(ir_.CreateLShr(bits, 16), llvm::ConstantInt::get(i32, 1));
  Value const rounded =
      ir_.CreateLShr(ir_.CreateAdd(bits, ir_.CreateAdd(odd, llvm::ConstantInt::get(i32, 0x7fff))), 16);
  Value const result =
      ir_.CreateSelect(ir_.CreateFCmpUNO(value, value), llvm::ConstantInt::get(i32, 0x7fc0), rounded);
  return ir_.CreateTrunc(result, TypeOf(Scalar::kI16, width));
}

// In hardware, from sm_80 on. Rounds like the integer code of ToStorage, except for the bits of a NaN.
Emitter::Value Emitter::RoundToBrain(Value value) {
  return Plain(ir_.CreateFPTrunc(value, ir_.getBFloatTy()));
}

Emitter::Values Emitter::LoadBlock(DType type, Value base, Value index, Scalar as, int width) {
  if (width == 1) return {Load(type, base, index, as)};
  const int size = static_cast<int>(ops::SizeOf(type)), bytes = size * width;
  const int part = std::min(bytes, kBlockBytes), word = std::min(part, 4);
  Value const address = Address(type, base, index);
  Values values;
  for (int at = 0; at < bytes; at += part) {
    Type* words = ir_.getIntNTy(static_cast<unsigned>(word) * 8);
    if (part > word) words = llvm::FixedVectorType::get(words, static_cast<unsigned>(part / word));
    auto* const load = ir_.CreateAlignedLoad(
        words, ir_.CreateConstInBoundsGEP1_64(ir_.getInt8Ty(), address, static_cast<uint64_t>(at)),
        llvm::Align(static_cast<uint64_t>(part)));
    MarkAccess(load);
    Value const elements = ir_.CreateBitCast(
        load, llvm::FixedVectorType::get(StorageOf(type), static_cast<unsigned>(part / size)));
    for (int e = 0; e < part / size; ++e)
      values.push_back(FromStorage(type, ir_.CreateExtractElement(elements, static_cast<uint64_t>(e)), as));
  }
  return values;
}

// Returns the values' bits as one vector of their storage type.
Emitter::Value Emitter::Pack(DType type, const Values& values, Scalar from) {
  const bool brain = type == DType::kBFloat16 && target_ == Target::kNvptx;
  Type* const element = brain ? ir_.getBFloatTy() : StorageOf(type);
  Value vector =
      llvm::PoisonValue::get(llvm::FixedVectorType::get(element, static_cast<unsigned>(values.size())));
  for (size_t e = 0; e < values.size(); ++e) {
    Value const value =
        brain ? RoundToBrain(Convert(values[e], from, Scalar::kF32)) : ToStorage(type, values[e], from);
    vector = ir_.CreateInsertElement(vector, value, e);
  }
  return vector;
}

void Emitter::StoreBlock(DType type, Value base, Value index, const Values& values, Scalar from) {
  if (values.size() == 1) return Store(type, base, index, values[0], from);
  const size_t size = ops::SizeOf(type), bytes = size * values.size();
  const size_t part = std::min<size_t>(bytes, kBlockBytes), word = std::min<size_t>(part, 4);
  Value const address = Address(type, base, index);
  for (size_t at = 0; at < bytes; at += part) {
    const auto first = values.begin() + static_cast<ptrdiff_t>(at / size);
    Type* words = ir_.getIntNTy(static_cast<unsigned>(word) * 8);
    if (part > word) words = llvm::FixedVectorType::get(words, static_cast<unsigned>(part / word));
    Value const packed =
        ir_.CreateBitCast(Pack(type, {first, first + static_cast<ptrdiff_t>(part / size)}, from), words);
    MarkAccess(ir_.CreateAlignedStore(packed, ir_.CreateConstInBoundsGEP1_64(ir_.getInt8Ty(), address, at),
                                      llvm::Align(part)));
  }
}

Emitter::Value Emitter::Load(DType type, Value base, Value index, Scalar as, int width) {
  Type* const storage = StorageOf(type);
  Type* const loaded =
      width > 1 ? llvm::FixedVectorType::get(storage, static_cast<unsigned>(width)) : storage;
  auto* const load =
      ir_.CreateAlignedLoad(loaded, Address(type, base, index), llvm::Align(ops::SizeOf(type)));
  MarkAccess(load);
  return FromStorage(type, load, as);
}

void Emitter::Store(DType type, Value base, Value index, Value value, Scalar from, int) {
  MarkAccess(ir_.CreateAlignedStore(ToStorage(type, value, from), Address(type, base, index),
                                    llvm::Align(ops::SizeOf(type))));
}

void Emitter::Atomically(DType type, Value base, Value index, Scalar as,
                         const std::function<Value(Value)>& combine) {
  const llvm::Align align(ops::SizeOf(type));
  Type* const bits = ir_.getIntNTy(static_cast<unsigned>(ops::SizeOf(type)) * 8);
  Value const address = Address(type, base, index);
  const llvm::SyncScope::ID device = context_.getOrInsertSyncScopeID("device");
  auto* const first = ir_.CreateAlignedLoad(bits, address, align);
  first->setAtomic(llvm::AtomicOrdering::Monotonic, device);
  While(
      {first, ir_.getFalse()}, [&](const Values& carried) { return ir_.CreateNot(carried[1]); },
      [&](const Values& carried) -> Values {
        Value const old = FromStorage(type, ir_.CreateBitCast(carried[0], StorageOf(type)), as);
        Value const next = ir_.CreateBitCast(ToStorage(type, combine(old), as), bits);
        auto* const exchange =
            ir_.CreateAtomicCmpXchg(address, carried[0], next, align, llvm::AtomicOrdering::Monotonic,
                                    llvm::AtomicOrdering::Monotonic, device);
        return {ir_.CreateExtractValue(exchange, 0), ir_.CreateExtractValue(exchange, 1)};
      });
}

void Emitter::AtomicAdd(DType type, Value base, Value index, Value value, Scalar from) {
  if (target_ == Target::kSpirv && ops::IsFloating(type)) {  // this needs an extension there
    return Atomically(type, base, index, from, [&](Value old) { return ir_.CreateFAdd(old, value); });
  }
  ir_.CreateAtomicRMW(ops::IsFloating(type) ? llvm::AtomicRMWInst::FAdd : llvm::AtomicRMWInst::Add,
                      Address(type, base, index), ToStorage(type, value, from),
                      llvm::Align(ops::SizeOf(type)), llvm::AtomicOrdering::Monotonic,
                      context_.getOrInsertSyncScopeID("device"));
}

void Emitter::AtomicAddFloats(Value base, Value index, const Values& values) {
  XPUD_CHECK(target_ == Target::kNvptx && values.size() == 4);
  Value const address = Address(DType::kFloat32, base, index);
  Type* const f32 = ir_.getFloatTy();
  auto* const type =
      llvm::FunctionType::get(ir_.getVoidTy(), {address->getType(), f32, f32, f32, f32}, false);
  auto* const add = llvm::InlineAsm::get(type, "red.relaxed.gpu.global.add.v4.f32 [$0], {$1, $2, $3, $4};",
                                         "l,f,f,f,f,~{memory}", /*hasSideEffects=*/true);
  ir_.CreateCall(add, {address, values[0], values[1], values[2], values[3]});
}

Emitter::Value Emitter::LoadRaw(Type* type, Value base, Value index) {
  auto* const load = ir_.CreateAlignedLoad(type, ir_.CreateInBoundsGEP(type->getScalarType(), base, index),
                                           llvm::Align(type->getScalarSizeInBits() / 8));
  MarkAccess(load);
  return load;
}

void Emitter::StoreRaw(Value base, Value index, Value value) {
  Type* const type = value->getType();
  MarkAccess(ir_.CreateAlignedStore(value, ir_.CreateInBoundsGEP(type->getScalarType(), base, index),
                                    llvm::Align(type->getScalarSizeInBits() / 8)));
}

Emitter::Value Emitter::Local(Type* element, uint64_t count) {
  llvm::BasicBlock& entry = function_->getEntryBlock();
  llvm::IRBuilder<> at(&entry, entry.begin());
  return at.CreateAlloca(llvm::ArrayType::get(element, count));
}

Emitter::Value Emitter::Shared(Type* element, uint64_t count) {
  XPUD_CHECK(gpu());
  auto* const type = llvm::ArrayType::get(element, count);
  return new llvm::GlobalVariable(*module_, type, false, llvm::GlobalValue::InternalLinkage,
                                  llvm::UndefValue::get(type), "shared", nullptr,
                                  llvm::GlobalValue::NotThreadLocal, 3);
}

Emitter::Value Emitter::CallMath(const std::string& name, Type* result,
                                 std::span<llvm::Value* const> operands) {
  std::vector<Type*> types;
  for (Value operand : operands) types.push_back(operand->getType());
  llvm::FunctionCallee callee =
      module_->getOrInsertFunction("xpud_" + name, llvm::FunctionType::get(result, types, false));
  return ir_.CreateCall(callee, {operands.data(), operands.size()});
}

Emitter::Value Emitter::LoadInvariant(DType type, Value base, Value index, Scalar as) {
  auto* const load =
      ir_.CreateAlignedLoad(StorageOf(type), Address(type, base, index), llvm::Align(ops::SizeOf(type)));
  load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(context_, {}));
  MarkAccess(load);
  return FromStorage(type, load, as);
}

Emitter::Value Emitter::IsIndex(Value index, Value count) {
  // Unsigned, so a negative index is very large.
  return ir_.CreateICmpULT(index, count);
}

Emitter::Value Emitter::IndexError(Value value) {
  return ir_.CreateOr(ir_.CreateShl(value, 8), I64(static_cast<int64_t>(DeviceError::kIndexOutOfRange)));
}

void Emitter::ReportIndex(Value error_word, Value bad, Value value) {
  ReportCode(error_word, ir_.CreateSelect(bad, IndexError(value), I64(0)));
}

void Emitter::ReportCode(Value error_word, Value code) {
  If(ir_.CreateICmpNE(code, I64(0)), [&] {
    auto* const reported = ir_.CreateAlignedLoad(ir_.getInt64Ty(), error_word, llvm::Align(8));
    reported->setAtomic(llvm::AtomicOrdering::Monotonic);
    If(ir_.CreateICmpEQ(reported, I64(0)), [&] {
      auto* const store = ir_.CreateAlignedStore(code, error_word, llvm::Align(8));
      store->setAtomic(llvm::AtomicOrdering::Monotonic);
    });
  });
}

}  // namespace xpud::kernels
