#include "kernels/compiler/emitter.h"

#include "kernels/api/op_call.h"
#include "llvm/IR/CFG.h"
#include "proto/base/check.h"

namespace xpud::kernels {

using llvm::Type;

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

Emitter::Value Emitter::Min(Value a, Value b) { return ir_.CreateSelect(ir_.CreateICmpSLT(a, b), a, b); }

Emitter::Value Emitter::CeilDiv(Value a, Value b) {
  return ir_.CreateUDiv(Add(a, ir_.CreateSub(b, I64(1))), b);
}

Emitter::Value Emitter::CallMath(const std::string& name, Type* result,
                                 std::span<llvm::Value* const> operands) {
  std::vector<Type*> types;
  for (Value operand : operands) types.push_back(operand->getType());
  llvm::FunctionCallee callee =
      module_->getOrInsertFunction("xpud_" + name, llvm::FunctionType::get(result, types, false));
  return ir_.CreateCall(callee, {operands.data(), operands.size()});
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
