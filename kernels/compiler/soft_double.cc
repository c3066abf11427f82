#include "kernels/compiler/soft_double.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/PostOrderIterator.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/Support/raw_ostream.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {
namespace {

using llvm::Type;
using llvm::Value;

constexpr uint64_t kSign = uint64_t{1} << 63;

absl::Status Unknown(const llvm::Value& what) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  what.print(stream);
  return absl::InternalError("no emulation of doubles for " + text);
}

bool IsDouble(const Type* type) { return type->isDoubleTy(); }

// Returns the type with 64-bit integers in place of doubles.
Type* WithoutDoubles(Type* type) {
  if (IsDouble(type)) return Type::getInt64Ty(type->getContext());
  if (auto* const array = llvm::dyn_cast<llvm::ArrayType>(type))
    return llvm::ArrayType::get(WithoutDoubles(array->getElementType()), array->getNumElements());
  return type;
}

llvm::Constant* WithoutDoubles(llvm::Constant* constant) {
  Type* const type = WithoutDoubles(constant->getType());
  if (type == constant->getType()) return constant;
  if (auto* const number = llvm::dyn_cast<llvm::ConstantFP>(constant))
    return llvm::ConstantInt::get(type, number->getValueAPF().bitcastToAPInt());
  if (llvm::isa<llvm::PoisonValue>(constant)) return llvm::PoisonValue::get(type);
  if (llvm::isa<llvm::UndefValue>(constant)) return llvm::UndefValue::get(type);
  if (constant->isNullValue()) return llvm::Constant::getNullValue(type);
  auto* const array = llvm::dyn_cast<llvm::ArrayType>(type);
  if (array == nullptr) return nullptr;
  std::vector<llvm::Constant*> elements;
  for (unsigned i = 0; i < array->getNumElements(); ++i) {
    llvm::Constant* const element = constant->getAggregateElement(i);
    elements.push_back(element == nullptr ? nullptr : WithoutDoubles(element));
    if (elements.back() == nullptr) return nullptr;
  }
  return llvm::ConstantArray::get(array, elements);
}

absl::Status ReplaceGlobals(llvm::Module& module) {
  for (llvm::GlobalVariable& old : llvm::make_early_inc_range(module.globals())) {
    Type* const type = WithoutDoubles(old.getValueType());
    if (type == old.getValueType()) continue;
    llvm::Constant* const value = old.hasInitializer() ? WithoutDoubles(old.getInitializer()) : nullptr;
    if (value == nullptr) return Unknown(old);
    auto* const made = new llvm::GlobalVariable(module, type, old.isConstant(), old.getLinkage(), value, "",
                                                &old, old.getThreadLocalMode(), old.getAddressSpace());
    made->copyAttributesFrom(&old);
    made->takeName(&old);
    old.replaceAllUsesWith(made);
    old.eraseFromParent();
  }
  return absl::OkStatus();
}

// Replaces one function's doubles.
class Replacement {
 public:
  explicit Replacement(llvm::Function& function)
      : function_(function), ir_(function.getContext()), i64_(ir_.getInt64Ty()) {}

  // Arguments that were doubles have another type already; `twins` says by which of them.
  absl::Status Run(llvm::DenseMap<Value*, Value*> twins) {
    twins_ = std::move(twins);
    const llvm::ReversePostOrderTraversal<llvm::Function*> blocks(&function_);
    for (llvm::BasicBlock* block : blocks) {
      for (llvm::Instruction& i : llvm::make_early_inc_range(*block)) RETURN_IF_ERROR(Replace(i));
    }
    for (auto& [phi, twin] : phis_) {
      for (unsigned i = 0; i < phi->getNumIncomingValues(); ++i) {
        ASSIGN_OR_RETURN(Value* const value, Twin(phi->getIncomingValue(i)));
        twin->addIncoming(value, phi->getIncomingBlock(i));
      }
    }
    for (llvm::Instruction* dead : dead_) {
      if (!dead->getType()->isVoidTy()) dead->replaceAllUsesWith(llvm::PoisonValue::get(dead->getType()));
      dead->eraseFromParent();
    }
    return absl::OkStatus();
  }

 private:
  // Returns the bits of a double.
  absl::StatusOr<Value*> Twin(Value* value) {
    if (auto* const constant = llvm::dyn_cast<llvm::Constant>(value)) {
      if (llvm::Constant* const bits = WithoutDoubles(constant)) return bits;
      return Unknown(*value);
    }
    const auto found = twins_.find(value);
    if (found == twins_.end()) return Unknown(*value);
    return found->second;
  }
  void Is(llvm::Instruction& old, Value* twin) {
    twins_[&old] = twin;
    dead_.push_back(&old);
  }
  // For results that are no doubles.
  void Becomes(llvm::Instruction& old, Value* value) {
    old.replaceAllUsesWith(value);
    dead_.push_back(&old);
  }
  Value* Call(const char* name, Type* result, std::initializer_list<Value*> arguments) {
    std::vector<Type*> types;
    for (const Value* argument : arguments) types.push_back(argument->getType());
    const auto callee = function_.getParent()->getOrInsertFunction(
        absl::StrCat("xpud_soft_", name), llvm::FunctionType::get(result, types, false));
    llvm::CallInst* const call = ir_.CreateCall(callee, std::vector<Value*>(arguments));
    if (function_.getCallingConv() == llvm::CallingConv::SPIR_KERNEL)
      call->setCallingConv(llvm::CallingConv::SPIR_FUNC);
    return call;
  }
  Value* Negate(Value* bits) { return ir_.CreateXor(bits, ir_.getInt64(kSign)); }
  Value* ToFloat(Value* bits) {
    return ir_.CreateBitCast(Call("to_f32", ir_.getInt32Ty(), {bits}), ir_.getFloatTy());
  }

  absl::Status Replace(llvm::Instruction& i);
  absl::Status ReplaceBinary(llvm::Instruction& i);
  absl::Status ReplaceConversion(llvm::Instruction& i);
  absl::Status ReplaceIntrinsic(llvm::IntrinsicInst& i);
  Value* Compare(llvm::CmpInst::Predicate predicate, Value* a, Value* b);

  llvm::Function& function_;
  llvm::IRBuilder<> ir_;
  Type* const i64_;
  llvm::DenseMap<Value*, Value*> twins_;  // of doubles
  std::vector<std::pair<llvm::PHINode*, llvm::PHINode*>> phis_;
  std::vector<llvm::Instruction*> dead_;
};

absl::Status Replacement::Replace(llvm::Instruction& i) {
  ir_.SetInsertPoint(&i);
  if (auto* const address = llvm::dyn_cast<llvm::GetElementPtrInst>(&i)) {
    address->setSourceElementType(WithoutDoubles(address->getSourceElementType()));
    address->setResultElementType(WithoutDoubles(address->getResultElementType()));
    return absl::OkStatus();
  }
  if (auto* const local = llvm::dyn_cast<llvm::AllocaInst>(&i)) {
    local->setAllocatedType(WithoutDoubles(local->getAllocatedType()));
    return absl::OkStatus();
  }
  const bool takes =
      llvm::any_of(i.operands(), [](const llvm::Use& use) { return IsDouble(use->getType()); });
  if (!takes && !IsDouble(i.getType())) return absl::OkStatus();
  if (auto* const intrinsic = llvm::dyn_cast<llvm::IntrinsicInst>(&i)) return ReplaceIntrinsic(*intrinsic);
  if (i.isBinaryOp()) return ReplaceBinary(i);
  if (i.isCast()) return ReplaceConversion(i);
  switch (i.getOpcode()) {
    case llvm::Instruction::PHI: {
      auto* const phi = llvm::cast<llvm::PHINode>(&i);
      phis_.emplace_back(phi, ir_.CreatePHI(i64_, phi->getNumIncomingValues()));
      Is(i, phis_.back().second);
      return absl::OkStatus();
    }
    case llvm::Instruction::Select: {
      ASSIGN_OR_RETURN(Value* const yes, Twin(i.getOperand(1)));
      ASSIGN_OR_RETURN(Value* const no, Twin(i.getOperand(2)));
      Is(i, ir_.CreateSelect(i.getOperand(0), yes, no));
      return absl::OkStatus();
    }
    case llvm::Instruction::Freeze: {
      ASSIGN_OR_RETURN(Value* const bits, Twin(i.getOperand(0)));
      Is(i, ir_.CreateFreeze(bits));
      return absl::OkStatus();
    }
    case llvm::Instruction::Load: {
      const auto& old = llvm::cast<llvm::LoadInst>(i);
      auto* const load = ir_.CreateAlignedLoad(i64_, i.getOperand(0), old.getAlign(), old.isVolatile());
      load->setOrdering(old.getOrdering());
      load->setSyncScopeID(old.getSyncScopeID());
      load->copyMetadata(i, {llvm::LLVMContext::MD_invariant_load, llvm::LLVMContext::MD_alias_scope,
                             llvm::LLVMContext::MD_noalias});
      Is(i, load);
      return absl::OkStatus();
    }
    case llvm::Instruction::Store: {
      const auto& old = llvm::cast<llvm::StoreInst>(i);
      ASSIGN_OR_RETURN(Value* const bits, Twin(i.getOperand(0)));
      auto* const store = ir_.CreateAlignedStore(bits, i.getOperand(1), old.getAlign(), old.isVolatile());
      store->setOrdering(old.getOrdering());
      store->setSyncScopeID(old.getSyncScopeID());
      dead_.push_back(&i);
      return absl::OkStatus();
    }
    case llvm::Instruction::FNeg: {
      ASSIGN_OR_RETURN(Value* const bits, Twin(i.getOperand(0)));
      Is(i, Negate(bits));
      return absl::OkStatus();
    }
    case llvm::Instruction::FCmp: {
      ASSIGN_OR_RETURN(Value* const a, Twin(i.getOperand(0)));
      ASSIGN_OR_RETURN(Value* const b, Twin(i.getOperand(1)));
      Value* const result = Compare(llvm::cast<llvm::FCmpInst>(i).getPredicate(), a, b);
      if (result == nullptr) return Unknown(i);
      Becomes(i, result);
      return absl::OkStatus();
    }
    default:
      return Unknown(i);
  }
}

absl::Status Replacement::ReplaceBinary(llvm::Instruction& i) {
  ASSIGN_OR_RETURN(Value* const a, Twin(i.getOperand(0)));
  ASSIGN_OR_RETURN(Value * b, Twin(i.getOperand(1)));
  switch (i.getOpcode()) {
    case llvm::Instruction::FSub:
      b = Negate(b);
      [[fallthrough]];
    case llvm::Instruction::FAdd:
      Is(i, Call("add", i64_, {a, b}));
      return absl::OkStatus();
    case llvm::Instruction::FMul:
      Is(i, Call("mul", i64_, {a, b}));
      return absl::OkStatus();
    case llvm::Instruction::FDiv:
      Is(i, Call("div", i64_, {a, b}));
      return absl::OkStatus();
    default:
      return Unknown(i);
  }
}

absl::Status Replacement::ReplaceConversion(llvm::Instruction& i) {
  Value* const from = i.getOperand(0);
  Type* const to = i.getType();
  if (IsDouble(to)) {
    switch (i.getOpcode()) {
      case llvm::Instruction::FPExt: {
        Value* const single = from->getType()->isFloatTy() ? from : ir_.CreateFPExt(from, ir_.getFloatTy());
        Is(i, Call("from_f32", i64_, {ir_.CreateBitCast(single, ir_.getInt32Ty())}));
        return absl::OkStatus();
      }
      case llvm::Instruction::SIToFP:
        Is(i, Call("from_i64", i64_, {ir_.CreateSExt(from, i64_)}));
        return absl::OkStatus();
      case llvm::Instruction::UIToFP:
        Is(i, Call("from_u64", i64_, {ir_.CreateZExt(from, i64_)}));
        return absl::OkStatus();
      case llvm::Instruction::BitCast:
        if (from->getType() != i64_) return Unknown(i);
        Is(i, from);
        return absl::OkStatus();
      default:
        return Unknown(i);
    }
  }
  ASSIGN_OR_RETURN(Value* const bits, Twin(from));
  switch (i.getOpcode()) {
    case llvm::Instruction::FPTrunc:
      if (!to->isFloatTy()) return Unknown(i);  // two roundings
      Becomes(i, ToFloat(bits));
      return absl::OkStatus();
    case llvm::Instruction::FPToSI:
      Becomes(i, ir_.CreateTrunc(Call("to_i64", i64_, {bits}), to));
      return absl::OkStatus();
    case llvm::Instruction::FPToUI:
      Becomes(i, ir_.CreateTrunc(Call("to_u64", i64_, {bits}), to));
      return absl::OkStatus();
    case llvm::Instruction::BitCast:
      if (to != i64_) return Unknown(i);
      Becomes(i, bits);
      return absl::OkStatus();
    default:
      return Unknown(i);
  }
}

absl::Status Replacement::ReplaceIntrinsic(llvm::IntrinsicInst& i) {
  std::vector<Value*> operands;
  for (Value* operand : i.args()) {
    operands.push_back(operand);
    if (!IsDouble(operand->getType())) continue;
    ASSIGN_OR_RETURN(operands.back(), Twin(operand));
  }
  const auto is_call = [&](const char* name) {
    Value* const result = operands.size() == 1   ? Call(name, i64_, {operands[0]})
                          : operands.size() == 2 ? Call(name, i64_, {operands[0], operands[1]})
                                                 : Call(name, i64_, {operands[0], operands[1], operands[2]});
    Is(i, result);
    return absl::OkStatus();
  };
  switch (i.getIntrinsicID()) {
    case llvm::Intrinsic::fma:
    case llvm::Intrinsic::fmuladd:
      return is_call("fma");
    case llvm::Intrinsic::sqrt:
      return is_call("sqrt");
    case llvm::Intrinsic::floor:
      return is_call("floor");
    case llvm::Intrinsic::ceil:
      return is_call("ceil");
    case llvm::Intrinsic::trunc:
      return is_call("trunc");
    case llvm::Intrinsic::rint:
    case llvm::Intrinsic::nearbyint:
    case llvm::Intrinsic::roundeven:
      return is_call("rint");
    case llvm::Intrinsic::minnum:
    case llvm::Intrinsic::minimumnum:
      return is_call("min");
    case llvm::Intrinsic::maxnum:
    case llvm::Intrinsic::maximumnum:
      return is_call("max");
    case llvm::Intrinsic::minimum:
      return is_call("minimum");
    case llvm::Intrinsic::maximum:
      return is_call("maximum");
    case llvm::Intrinsic::fabs:
      Is(i, ir_.CreateAnd(operands[0], ir_.getInt64(~kSign)));
      return absl::OkStatus();
    case llvm::Intrinsic::copysign:
      Is(i, ir_.CreateOr(ir_.CreateAnd(operands[0], ir_.getInt64(~kSign)),
                         ir_.CreateAnd(operands[1], ir_.getInt64(kSign))));
      return absl::OkStatus();
    case llvm::Intrinsic::is_fpclass: {
      Value* const bit = Call("class", ir_.getInt32Ty(), {operands[0]});
      Becomes(i, ir_.CreateIsNotNull(ir_.CreateAnd(bit, operands[1])));
      return absl::OkStatus();
    }
    case llvm::Intrinsic::fptosi_sat: {
      const unsigned width = i.getType()->getIntegerBitWidth();
      Value* whole = Call("to_i64", i64_, {operands[0]});
      if (width > 64) return Unknown(i);
      const auto most = static_cast<int64_t>((uint64_t{1} << (width - 1)) - 1);
      whole = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, whole, llvm::ConstantInt::get(i64_, most));
      whole = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, whole,
                                        llvm::ConstantInt::getSigned(i64_, -most - 1));
      Becomes(i, ir_.CreateTrunc(whole, i.getType()));
      return absl::OkStatus();
    }
    case llvm::Intrinsic::fptoui_sat: {
      const unsigned width = i.getType()->getIntegerBitWidth();
      if (width > 64) return Unknown(i);
      Value* const whole = Call("to_u64", i64_, {operands[0]});
      const uint64_t most = width == 64 ? UINT64_MAX : (uint64_t{1} << width) - 1;
      Becomes(i, ir_.CreateTrunc(ir_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, whole,
                                                           llvm::ConstantInt::get(i64_, most)),
                                 i.getType()));
      return absl::OkStatus();
    }
    default:
      return Unknown(i);
  }
}

// Returns null for the predicates that do not compare.
Value* Replacement::Compare(llvm::CmpInst::Predicate predicate, Value* a, Value* b) {
  Value* const order = Call("compare", ir_.getInt32Ty(), {a, b});
  const auto is = [&](llvm::CmpInst::Predicate how, int32_t number) {
    return ir_.CreateICmp(how, order, llvm::ConstantInt::getSigned(ir_.getInt32Ty(), number));
  };
  using llvm::CmpInst;
  switch (predicate) {  // -1: less; 0: equal; 1: greater; 2: unordered
    case CmpInst::FCMP_OEQ:
      return is(CmpInst::ICMP_EQ, 0);
    case CmpInst::FCMP_OGT:
      return is(CmpInst::ICMP_EQ, 1);
    case CmpInst::FCMP_OGE:
      return is(CmpInst::ICMP_ULE, 1);
    case CmpInst::FCMP_OLT:
      return is(CmpInst::ICMP_EQ, -1);
    case CmpInst::FCMP_OLE:
      return is(CmpInst::ICMP_SLE, 0);
    case CmpInst::FCMP_ONE:
      return ir_.CreateOr(is(CmpInst::ICMP_EQ, -1), is(CmpInst::ICMP_EQ, 1));
    case CmpInst::FCMP_ORD:
      return is(CmpInst::ICMP_NE, 2);
    case CmpInst::FCMP_UNO:
      return is(CmpInst::ICMP_EQ, 2);
    case CmpInst::FCMP_UEQ:
      return ir_.CreateOr(is(CmpInst::ICMP_EQ, 0), is(CmpInst::ICMP_EQ, 2));
    case CmpInst::FCMP_UGT:
      return is(CmpInst::ICMP_SGE, 1);
    case CmpInst::FCMP_UGE:
      return is(CmpInst::ICMP_SGE, 0);
    case CmpInst::FCMP_ULT:
      return ir_.CreateOr(is(CmpInst::ICMP_EQ, -1), is(CmpInst::ICMP_EQ, 2));
    case CmpInst::FCMP_ULE:
      return is(CmpInst::ICMP_NE, 1);
    case CmpInst::FCMP_UNE:
      return is(CmpInst::ICMP_NE, 0);
    default:
      return nullptr;
  }
}

// Gives the function 64-bit integers for its parameters that are doubles. Returns it, and which of the old
// parameters are now which.
std::pair<llvm::Function*, llvm::DenseMap<Value*, Value*>> ReplaceParameters(llvm::Function& old) {
  llvm::DenseMap<Value*, Value*> twins;
  std::vector<Type*> types;
  for (Type* type : old.getFunctionType()->params()) types.push_back(WithoutDoubles(type));
  auto* const signature = llvm::FunctionType::get(old.getReturnType(), types, false);
  if (signature == old.getFunctionType()) return {&old, std::move(twins)};
  auto* const made =
      llvm::Function::Create(signature, old.getLinkage(), old.getAddressSpace(), "", old.getParent());
  made->copyAttributesFrom(&old);
  made->copyMetadata(&old, 0);
  made->takeName(&old);
  made->splice(made->begin(), &old);
  for (auto [from, to] : llvm::zip(old.args(), made->args())) {
    to.takeName(&from);
    if (IsDouble(from.getType())) {
      twins[&from] = &to;
    } else {
      from.replaceAllUsesWith(&to);
    }
  }
  return {made, std::move(twins)};
}

}  // namespace

absl::Status ReplaceDoubles(llvm::Module& module) {
  RETURN_IF_ERROR(ReplaceGlobals(module));
  std::vector<llvm::Function*> functions;
  for (llvm::Function& function : module) {
    if (!function.isDeclaration()) functions.push_back(&function);
  }
  for (llvm::Function* function : functions) {
    if (IsDouble(function->getReturnType())) return Unknown(*function);
    auto [made, twins] = ReplaceParameters(*function);
    RETURN_IF_ERROR(Replacement(*made).Run(std::move(twins)));
    if (made != function) function->eraseFromParent();
  }
  return absl::OkStatus();
}

}  // namespace xpud::kernels
