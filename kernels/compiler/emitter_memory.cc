// Emitter: elements in memory.
#include "kernels/compiler/emitter.h"

#include <algorithm>

#include "llvm/IR/InlineAsm.h"
#include "proto/base/check.h"

namespace xpud::kernels {

using llvm::Type;
using ops::DType;

namespace {

// A bool takes a byte.
llvm::Align AlignOfRaw(Type* type) { return llvm::Align(std::max(type->getScalarSizeInBits() / 8, 1u)); }

}  // namespace

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
  const size_t size = ops::SizeOf(type);
  const bool is_part = size < 4;
  Type* const bits = ir_.getIntNTy(static_cast<unsigned>(size) * 8);
  Type* const word = is_part ? ir_.getInt32Ty() : bits;
  const llvm::Align align(std::max<size_t>(size, 4));
  Value address = Address(type, base, index), shift = nullptr, mask = nullptr;
  if (is_part) {
    Value const at = ir_.CreatePtrToInt(address, ir_.getInt64Ty());
    address = ir_.CreateIntToPtr(ir_.CreateAnd(at, I64(~3)), address->getType());
    shift = ir_.CreateShl(ir_.CreateTrunc(ir_.CreateAnd(at, I64(3)), word), 3);
    mask = ir_.CreateNot(ir_.CreateShl(ir_.getInt32((1u << size * 8) - 1), shift));
  }
  const llvm::SyncScope::ID device = context_.getOrInsertSyncScopeID("device");
  auto* const first = ir_.CreateAlignedLoad(word, address, align);
  first->setAtomic(llvm::AtomicOrdering::Monotonic, device);
  While(
      {first, ir_.getFalse()}, [&](const Values& carried) { return ir_.CreateNot(carried[1]); },
      [&](const Values& carried) -> Values {
        Value old = carried[0];
        if (is_part) old = ir_.CreateTrunc(ir_.CreateLShr(old, shift), bits);
        old = FromStorage(type, ir_.CreateBitCast(old, StorageOf(type)), as);
        Value next = ir_.CreateBitCast(ToStorage(type, combine(old), as), bits);
        if (is_part)
          next =
              ir_.CreateOr(ir_.CreateAnd(carried[0], mask), ir_.CreateShl(ir_.CreateZExt(next, word), shift));
        auto* const exchange =
            ir_.CreateAtomicCmpXchg(address, carried[0], next, align, llvm::AtomicOrdering::Monotonic,
                                    llvm::AtomicOrdering::Monotonic, device);
        return {ir_.CreateExtractValue(exchange, 0), ir_.CreateExtractValue(exchange, 1)};
      });
}

void Emitter::AtomicAdd(DType type, Value base, Value index, Value value, Scalar from) {
  const bool is_real = ops::IsFloating(type);
  // SPIR-V needs an extension for floats.
  if (ops::SizeOf(type) < 4 || (target_ == Target::kSpirv && is_real)) {
    return Atomically(type, base, index, from, [&](Value old) {
      return is_real ? ir_.CreateFAdd(old, value) : ir_.CreateAdd(old, value);
    });
  }
  ir_.CreateAtomicRMW(is_real ? llvm::AtomicRMWInst::FAdd : llvm::AtomicRMWInst::Add,
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
                                           AlignOfRaw(type));
  MarkAccess(load);
  return load;
}

void Emitter::StoreRaw(Value base, Value index, Value value) {
  Type* const type = value->getType();
  MarkAccess(ir_.CreateAlignedStore(value, ir_.CreateInBoundsGEP(type->getScalarType(), base, index),
                                    AlignOfRaw(type)));
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

Emitter::Value Emitter::LoadInvariant(DType type, Value base, Value index, Scalar as) {
  auto* const load =
      ir_.CreateAlignedLoad(StorageOf(type), Address(type, base, index), llvm::Align(ops::SizeOf(type)));
  load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(context_, {}));
  MarkAccess(load);
  return FromStorage(type, load, as);
}

}  // namespace xpud::kernels
