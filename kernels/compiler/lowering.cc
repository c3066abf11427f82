#include "kernels/compiler/lowering.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

using llvm::Value;
using llvm::Intrinsic::ID;

namespace {

bool IsUnsigned(Scalar s) { return s == Scalar::kU8 || s == Scalar::kBool; }

int64_t LowestOf(Scalar s) {
  switch (s) {
    case Scalar::kBool:
    case Scalar::kU8:
      return 0;
    case Scalar::kI8:
      return std::numeric_limits<int8_t>::min();
    case Scalar::kI16:
      return std::numeric_limits<int16_t>::min();
    case Scalar::kI32:
      return std::numeric_limits<int32_t>::min();
    default:
      return std::numeric_limits<int64_t>::min();
  }
}

int64_t HighestOf(Scalar s) {
  if (s == Scalar::kBool) return 1;
  return s == Scalar::kU8 ? std::numeric_limits<uint8_t>::max() : ~LowestOf(s);
}

const char* MathName(Op op) {
  if (IsSpecial(op)) return NameOf(op).data();
  switch (op) {
    case Op::kExp:
      return "exp";
    case Op::kExp2:
      return "exp2";
    case Op::kExpm1:
      return "expm1";
    case Op::kLog:
      return "log";
    case Op::kLog2:
      return "log2";
    case Op::kLog10:
      return "log10";
    case Op::kLog1p:
      return "log1p";
    case Op::kSin:
      return "sin";
    case Op::kCos:
      return "cos";
    case Op::kTan:
      return "tan";
    case Op::kAsin:
      return "asin";
    case Op::kAcos:
      return "acos";
    case Op::kAtan:
      return "atan";
    case Op::kSinh:
      return "sinh";
    case Op::kCosh:
      return "cosh";
    case Op::kTanh:
      return "tanh";
    case Op::kAsinh:
      return "asinh";
    case Op::kAcosh:
      return "acosh";
    case Op::kAtanh:
      return "atanh";
    case Op::kErf:
      return "erf";
    case Op::kErfc:
      return "erfc";
    case Op::kErfinv:
      return "erfinv";
    case Op::kLgamma:
      return "lgamma";
    case Op::kSigmoid:
      return "sigmoid";
    case Op::kPow:
      return "pow";
    case Op::kAtan2:
      return "atan2";
    case Op::kFmod:
      return "fmod";
    case Op::kRemainder:
      return "remainder";
    case Op::kHypot:
      return "hypot";
    default:
      return nullptr;
  }
}

}  // namespace

absl::StatusOr<Typed> Lowering::Lower(NodeId id) {
  std::optional<Typed>& known = memo_[static_cast<size_t>(id)];
  if (!known) {
    ASSIGN_OR_RETURN(const Typed lowered, LowerNew(expression_[id]));
    known = lowered;
  }
  return *known;
}

bool Lowering::IsLiteral(NodeId id) const {
  const Node& node = expression_[id];
  if (node.op == Op::kNeg) return IsLiteral(node.operands[0]);
  return node.op == Op::kInteger || node.op == Op::kReal;
}

Value* Lowering::Literal(const Node& node, Scalar scalar) {
  if (node.op == Op::kNeg) return emitter_.ir().CreateNeg(Literal(expression_[node.operands[0]], scalar));
  if (node.op == Op::kReal) return emitter_.Constant(scalar, node.real, width_);
  return emitter_.IntegerConstant(scalar, node.integer, width_);
}

absl::StatusOr<Value*> Lowering::LowerAs(NodeId id, Scalar scalar) {
  if (IsLiteral(id) && scalar != Scalar::kBool) {
    const Node& node = expression_[id];
    if (node.op != Op::kNeg) return Literal(node, scalar);
    if (!IsFloat(scalar)) return emitter_.ir().CreateNeg(Literal(expression_[node.operands[0]], scalar));
    return emitter_.ir().CreateFNeg(Literal(expression_[node.operands[0]], scalar));
  }
  ASSIGN_OR_RETURN(const Typed typed, Lower(id));
  return emitter_.Convert(typed.value, typed.scalar, scalar);
}

absl::StatusOr<Scalar> Lowering::Common(std::span<const NodeId> operands, bool arithmetic) {
  std::optional<Scalar> common;
  for (const NodeId id : operands) {
    if (IsLiteral(id)) continue;
    ASSIGN_OR_RETURN(const Typed typed, Lower(id));
    if (!common) {
      common = typed.scalar;
    } else if (IsFloat(typed.scalar) != IsFloat(*common)) {
      common = IsFloat(typed.scalar) ? typed.scalar : *common;
    } else {
      common = std::max(*common, typed.scalar);
    }
  }
  if (!common) common = compute_;
  // A bool next to a number literal, or in arithmetic, is treated as a number.
  if (*common == Scalar::kBool && arithmetic) return Scalar::kI32;
  return *common;
}

absl::StatusOr<Typed> Lowering::LowerNew(const Node& node) {
  switch (node.op) {
    case Op::kVariable: {
      const Typed& bound = bindings_[static_cast<size_t>(node.variable)];
      if (bound.value == nullptr)
        return absl::InvalidArgumentError("a formula names a variable that its family lacks");
      return bound;
    }
    case Op::kInteger:
    case Op::kReal:
      return Typed{Literal(node, compute_), compute_};
    case Op::kPi:
      return Typed{emitter_.Constant(compute_, M_PI, width_), compute_};
    case Op::kInf:
      return Typed{emitter_.Constant(compute_, INFINITY, width_), compute_};
    case Op::kNan:
      return Typed{llvm::ConstantFP::getNaN(emitter_.TypeOf(compute_, width_)), compute_};
    case Op::kLowest:
    case Op::kHighest:
      return Limit(node);
    case Op::kEps:
      if (!IsFloat(compute_)) return absl::InvalidArgumentError("eps of integers");
      return Typed{emitter_.Constant(compute_, compute_ == Scalar::kF64 ? 0x1p-52 : 0x1p-23, width_),
                   compute_};
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kDiv:
    case Op::kNeg:
    case Op::kFloordiv:
    case Op::kTruncdiv:
      return Arithmetic(node);
    case Op::kEq:
    case Op::kNe:
    case Op::kLt:
    case Op::kLe:
    case Op::kGt:
    case Op::kGe:
      return Compare(node);
    case Op::kNot:
    case Op::kAnd:
    case Op::kOr:
      return Logic(node);
    case Op::kBitAnd:
    case Op::kBitOr:
    case Op::kBitXor:
    case Op::kBitNot:
    case Op::kShl:
    case Op::kShr:
      return Bits(node);
    case Op::kAbs:
    case Op::kSign:
      return AbsOrSign(node);
    case Op::kFloor:
    case Op::kCeil:
    case Op::kRound:
    case Op::kTrunc:
      return Rounding(node);
    case Op::kMin:
    case Op::kMax:
    case Op::kFmin:
    case Op::kFmax:
      return Extreme(node);
    case Op::kWhere:
      return Where(node);
    case Op::kIsnan:
    case Op::kIsinf:
    case Op::kIsfinite:
      return Classify(node);
    case Op::kStored:
      return Stored(node);
    case Op::kRand:
    case Op::kRandn:
    case Op::kRandint:
    case Op::kRandgamma:
    case Op::kRandpoisson:
    case Op::kRandbinomial:
      return Random(node);
    case Op::kSqrt:
    case Op::kRsqrt:
      return Root(node);
    case Op::kCopysign:
    case Op::kFma:
      return CopysignOrFma(node);
    default:
      return Math(node);
  }
}

absl::StatusOr<Typed> Lowering::Limit(const Node& node) {
  const bool lowest = node.op == Op::kLowest;
  if (IsFloat(compute_)) {
    return Typed{emitter_.Constant(compute_, lowest ? -INFINITY : INFINITY, width_), compute_};
  }
  return Typed{emitter_.IntegerConstant(compute_, lowest ? LowestOf(compute_) : HighestOf(compute_), width_),
               compute_};
}

absl::StatusOr<Typed> Lowering::Root(const Node& node) {
  auto& ir = emitter_.ir();
  ASSIGN_OR_RETURN(const Scalar s, Common({node.operands.data(), 1}, true));
  if (!IsFloat(s)) return absl::InvalidArgumentError("sqrt of an integer");
  ASSIGN_OR_RETURN(Value* const x, LowerAs(node.operands[0], s));
  Value* const root = ir.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x);
  if (node.op == Op::kSqrt) return Typed{root, s};
  return Typed{ir.CreateFDiv(emitter_.Constant(s, 1, width_), root), s};
}

absl::StatusOr<Typed> Lowering::CopysignOrFma(const Node& node) {
  auto& ir = emitter_.ir();
  ASSIGN_OR_RETURN(const Scalar s, Common({node.operands.data(), node.arity}, true));
  if (!IsFloat(s)) return absl::InvalidArgumentError("fma or copysign of integers");
  ASSIGN_OR_RETURN(Value* const x, LowerAs(node.operands[0], s));
  ASSIGN_OR_RETURN(Value* const y, LowerAs(node.operands[1], s));
  if (node.op == Op::kCopysign) return Typed{ir.CreateCopySign(x, y), s};
  ASSIGN_OR_RETURN(Value* const z, LowerAs(node.operands[2], s));
  return Typed{ir.CreateIntrinsic(x->getType(), llvm::Intrinsic::fma, {x, y, z}), s};
}

absl::StatusOr<Typed> Lowering::Arithmetic(const Node& node) {
  auto& ir = emitter_.ir();
  ASSIGN_OR_RETURN(const Scalar s, Common({node.operands.data(), node.arity}, true));
  ASSIGN_OR_RETURN(Value* const x, LowerAs(node.operands[0], s));
  if (node.op == Op::kNeg) return Typed{IsFloat(s) ? ir.CreateFNeg(x) : ir.CreateNeg(x), s};
  ASSIGN_OR_RETURN(Value* const y, LowerAs(node.operands[1], s));
  if (!IsFloat(s)) {
    switch (node.op) {
      case Op::kAdd:
        return Typed{ir.CreateAdd(x, y), s};
      case Op::kSub:
        return Typed{ir.CreateSub(x, y), s};
      case Op::kMul:
        return Typed{ir.CreateMul(x, y), s};
      default:
        return IntegerDivide(node, {x, s}, {y, s});
    }
  }
  switch (node.op) {
    case Op::kAdd:
      return Typed{ir.CreateFAdd(x, y), s};
    case Op::kSub:
      return Typed{ir.CreateFSub(x, y), s};
    case Op::kMul:
      return Typed{ir.CreateFMul(x, y), s};
    case Op::kDiv:
      return Typed{ir.CreateFDiv(x, y), s};
    case Op::kTruncdiv:
      return Typed{ir.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, ir.CreateFDiv(x, y)), s};
    default: {
      // Python's floor division: the exact remainder decides, so that 0.6 // 0.2 is 2.
      Value* const operands[] = {x, y};
      return Typed{
          emitter_.CallMath(s == Scalar::kF32 ? "floordiv_f32" : "floordiv_f64", x->getType(), operands), s};
    }
  }
}

absl::StatusOr<Typed> Lowering::IntegerDivide(const Node& node, Typed x, Typed y) {
  auto& ir = emitter_.ir();
  const Scalar s = x.scalar;
  // No division traps: x / 0 is 0, and lowest / -1 wraps.
  Value* const zero = emitter_.IntegerConstant(s, 0, width_);
  Value* const one = emitter_.IntegerConstant(s, 1, width_);
  Value* const by_zero = ir.CreateICmpEQ(y.value, zero);
  if (IsUnsigned(s)) {
    Value* const quotient = ir.CreateUDiv(x.value, ir.CreateSelect(by_zero, one, y.value));
    return Typed{ir.CreateSelect(by_zero, zero, quotient), s};
  }
  Value* const minus_one = emitter_.IntegerConstant(s, -1, width_);
  Value* const by_minus_one = ir.CreateICmpEQ(y.value, minus_one);
  Value* const divisor = ir.CreateSelect(ir.CreateOr(by_zero, by_minus_one), one, y.value);
  Value* quotient = ir.CreateSDiv(x.value, divisor);
  if (node.op == Op::kFloordiv) {
    Value* const rest = ir.CreateSub(x.value, ir.CreateMul(quotient, divisor));
    Value* const opposite = ir.CreateICmpSLT(ir.CreateXor(rest, divisor), zero);
    Value* const down = ir.CreateAnd(ir.CreateICmpNE(rest, zero), opposite);
    quotient = ir.CreateSelect(down, ir.CreateSub(quotient, one), quotient);
  }
  quotient = ir.CreateSelect(by_minus_one, ir.CreateNeg(x.value), quotient);
  return Typed{ir.CreateSelect(by_zero, zero, quotient), s};
}

absl::StatusOr<Typed> Lowering::Compare(const Node& node) {
  auto& ir = emitter_.ir();
  ASSIGN_OR_RETURN(const Scalar s, Common({node.operands.data(), 2}, true));
  ASSIGN_OR_RETURN(Value* const x, LowerAs(node.operands[0], s));
  ASSIGN_OR_RETURN(Value* const y, LowerAs(node.operands[1], s));
  using P = llvm::CmpInst::Predicate;
  struct Choice {
    P real, is_signed, is_unsigned;
  };
  const auto choice = [&]() -> Choice {
    switch (node.op) {
      case Op::kEq:
        return {P::FCMP_OEQ, P::ICMP_EQ, P::ICMP_EQ};
      case Op::kNe:
        return {P::FCMP_UNE, P::ICMP_NE, P::ICMP_NE};
      case Op::kLt:
        return {P::FCMP_OLT, P::ICMP_SLT, P::ICMP_ULT};
      case Op::kLe:
        return {P::FCMP_OLE, P::ICMP_SLE, P::ICMP_ULE};
      case Op::kGt:
        return {P::FCMP_OGT, P::ICMP_SGT, P::ICMP_UGT};
      default:
        return {P::FCMP_OGE, P::ICMP_SGE, P::ICMP_UGE};
    }
  }();
  if (IsFloat(s)) return Typed{ir.CreateFCmp(choice.real, x, y), Scalar::kBool};
  return Typed{ir.CreateICmp(IsUnsigned(s) ? choice.is_unsigned : choice.is_signed, x, y), Scalar::kBool};
}

absl::StatusOr<Typed> Lowering::Logic(const Node& node) {
  auto& ir = emitter_.ir();
  ASSIGN_OR_RETURN(Value* const x, Bool(node.operands[0]));
  if (node.op == Op::kNot) return Typed{ir.CreateNot(x), Scalar::kBool};
  ASSIGN_OR_RETURN(Value* const y, Bool(node.operands[1]));
  return Typed{node.op == Op::kAnd ? ir.CreateAnd(x, y) : ir.CreateOr(x, y), Scalar::kBool};
}

absl::StatusOr<Typed> Lowering::Bits(const Node& node) {
  auto& ir = emitter_.ir();
  ASSIGN_OR_RETURN(const Scalar s, Common({node.operands.data(), node.arity}, false));
  if (IsFloat(s)) return absl::InvalidArgumentError("bitwise operation on floats");
  ASSIGN_OR_RETURN(Value* const x, LowerAs(node.operands[0], s));
  if (node.op == Op::kBitNot) return Typed{ir.CreateNot(x), s};
  ASSIGN_OR_RETURN(Value* const y, LowerAs(node.operands[1], s));
  if (node.op == Op::kBitAnd) return Typed{ir.CreateAnd(x, y), s};
  if (node.op == Op::kBitOr) return Typed{ir.CreateOr(x, y), s};
  if (node.op == Op::kBitXor) return Typed{ir.CreateXor(x, y), s};
  // As in ATen: a shift by the width or more, or by a negative count, gives 0 (the sign for a right shift).
  const int64_t bits = static_cast<int64_t>(x->getType()->getScalarSizeInBits());
  Value* const far = ir.CreateICmpUGE(y, emitter_.IntegerConstant(s, bits, width_));
  Value* const zero = emitter_.IntegerConstant(s, 0, width_);
  Value* const last = emitter_.IntegerConstant(s, bits - 1, width_);
  if (node.op == Op::kShl)
    return Typed{ir.CreateSelect(far, zero, ir.CreateShl(x, ir.CreateSelect(far, zero, y))), s};
  if (IsUnsigned(s))
    return Typed{ir.CreateSelect(far, zero, ir.CreateLShr(x, ir.CreateSelect(far, zero, y))), s};
  return Typed{ir.CreateAShr(x, ir.CreateSelect(far, last, y)), s};
}

absl::StatusOr<Typed> Lowering::AbsOrSign(const Node& node) {
  auto& ir = emitter_.ir();
  ASSIGN_OR_RETURN(const Scalar s, Common({node.operands.data(), 1}, true));
  ASSIGN_OR_RETURN(Value* const x, LowerAs(node.operands[0], s));
  Value* const zero = emitter_.IntegerConstant(s, 0, width_);
  Value* const one = emitter_.IntegerConstant(s, 1, width_);
  Value* const minus_one = emitter_.IntegerConstant(s, -1, width_);
  if (node.op == Op::kAbs) {
    if (IsFloat(s)) return Typed{ir.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x), s};
    if (IsUnsigned(s)) return Typed{x, s};
    return Typed{ir.CreateSelect(ir.CreateICmpSLT(x, zero), ir.CreateNeg(x), x), s};
  }
  if (IsFloat(s)) {
    // NaN gives 0, as in ATen.
    Value* const negative = ir.CreateSelect(ir.CreateFCmpOLT(x, zero), minus_one, zero);
    return Typed{ir.CreateSelect(ir.CreateFCmpOGT(x, zero), one, negative), s};
  }
  if (IsUnsigned(s)) return Typed{ir.CreateSelect(ir.CreateICmpEQ(x, zero), zero, one), s};
  Value* const negative = ir.CreateSelect(ir.CreateICmpSLT(x, zero), minus_one, zero);
  return Typed{ir.CreateSelect(ir.CreateICmpSGT(x, zero), one, negative), s};
}

absl::StatusOr<Typed> Lowering::Stored(const Node& node) {
  if (!stored_) return absl::InvalidArgumentError("stored() outside a map");
  ASSIGN_OR_RETURN(const Typed x, Lower(node.operands[0]));
  Value* const raw = emitter_.ToStorage(*stored_, x.value, x.scalar);
  return Typed{emitter_.FromStorage(*stored_, raw, x.scalar), x.scalar};
}

absl::StatusOr<Typed> Lowering::Rounding(const Node& node) {
  ASSIGN_OR_RETURN(const Scalar s, Common({node.operands.data(), 1}, true));
  ASSIGN_OR_RETURN(Value* const x, LowerAs(node.operands[0], s));
  if (!IsFloat(s)) return Typed{x, s};
  const ID id = node.op == Op::kFloor   ? llvm::Intrinsic::floor
                : node.op == Op::kCeil  ? llvm::Intrinsic::ceil
                : node.op == Op::kRound ? llvm::Intrinsic::rint
                                        : llvm::Intrinsic::trunc;
  return Typed{emitter_.ir().CreateUnaryIntrinsic(id, x), s};
}

absl::StatusOr<Typed> Lowering::Extreme(const Node& node) {
  auto& ir = emitter_.ir();
  ASSIGN_OR_RETURN(const Scalar s, Common({node.operands.data(), 2}, true));
  ASSIGN_OR_RETURN(Value* const x, LowerAs(node.operands[0], s));
  ASSIGN_OR_RETURN(Value* const y, LowerAs(node.operands[1], s));
  const bool max = node.op == Op::kMax || node.op == Op::kFmax;
  if (!IsFloat(s)) {
    Value* const first = IsUnsigned(s) ? (max ? ir.CreateICmpUGT(x, y) : ir.CreateICmpULT(x, y))
                                       : (max ? ir.CreateICmpSGT(x, y) : ir.CreateICmpSLT(x, y));
    return Typed{ir.CreateSelect(first, x, y), s};
  }
  // An ordered select is one instruction on x86, which gives y if either is NaN. One more select handles NaN.
  Value* const ordered = ir.CreateSelect(max ? ir.CreateFCmpOGT(x, y) : ir.CreateFCmpOLT(x, y), x, y);
  if (node.op == Op::kMax || node.op == Op::kMin) {
    return Typed{ir.CreateSelect(ir.CreateFCmpUNO(x, x), x, ordered), s};
  }
  return Typed{ir.CreateSelect(ir.CreateFCmpUNO(y, y), x, ordered), s};
}

absl::StatusOr<Typed> Lowering::Where(const Node& node) {
  ASSIGN_OR_RETURN(Value* const condition, Bool(node.operands[0]));
  ASSIGN_OR_RETURN(Scalar s, Common({node.operands.data() + 1, 2}, false));
  if (s == Scalar::kBool && (IsLiteral(node.operands[1]) || IsLiteral(node.operands[2]))) s = Scalar::kI32;
  ASSIGN_OR_RETURN(Value* const x, LowerAs(node.operands[1], s));
  ASSIGN_OR_RETURN(Value* const y, LowerAs(node.operands[2], s));
  return Typed{emitter_.ir().CreateSelect(condition, x, y), s};
}

absl::StatusOr<Typed> Lowering::Classify(const Node& node) {
  auto& ir = emitter_.ir();
  ASSIGN_OR_RETURN(const Typed x, Lower(node.operands[0]));
  if (!IsFloat(x.scalar)) {
    return Typed{emitter_.IntegerConstant(Scalar::kBool, node.op == Op::kIsfinite, width_), Scalar::kBool};
  }
  if (node.op == Op::kIsnan) return Typed{ir.CreateFCmpUNO(x.value, x.value), Scalar::kBool};
  Value* const magnitude = ir.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x.value);
  Value* const inf = emitter_.Constant(x.scalar, INFINITY, width_);
  if (node.op == Op::kIsinf) return Typed{ir.CreateFCmpOEQ(magnitude, inf), Scalar::kBool};
  return Typed{ir.CreateFCmpOLT(magnitude, inf), Scalar::kBool};
}

absl::StatusOr<Typed> Lowering::Random(const Node& node) {
  const Typed& index = bindings_[static_cast<size_t>(Variable::kIndex)];
  if (index.value == nullptr || width_ > 1) return absl::InvalidArgumentError("random numbers outside a map");
  // Parameters of the distribution, then seed and offset.
  const size_t parameters = node.arity - 2u;
  std::vector<Value*> operands;
  for (size_t i = 0; i < node.arity; ++i) {
    const Scalar scalar = i < parameters ? Scalar::kF64 : Scalar::kI64;
    ASSIGN_OR_RETURN(Value* const operand, LowerAs(node.operands[i], scalar));
    operands.push_back(operand);
  }
  operands.push_back(index.value);
  if (node.op == Op::kRandint) {
    return Typed{emitter_.CallMath("randint", emitter_.TypeOf(Scalar::kI64), operands), Scalar::kI64};
  }
  const Scalar s = compute_ == Scalar::kF64 ? Scalar::kF64 : Scalar::kF32;
  if (parameters > 0) {
    Value* const drawn =
        emitter_.CallMath(std::string(NameOf(node.op)), emitter_.TypeOf(Scalar::kF64), operands);
    return Typed{emitter_.Convert(drawn, Scalar::kF64, s), s};
  }
  return Typed{emitter_.CallMath(
                   absl::StrCat(node.op == Op::kRand ? "rand" : "randn", s == Scalar::kF64 ? "_f64" : "_f32"),
                   emitter_.TypeOf(s), operands),
               s};
}

absl::StatusOr<Typed> Lowering::Math(const Node& node) {
  ASSIGN_OR_RETURN(Scalar s, Common({node.operands.data(), node.arity}, true));
  const char* const name = MathName(node.op);
  if (name == nullptr) return absl::InternalError("an operation without lowering");
  const Scalar result = s;
  if (!IsFloat(s)) {
    const bool exists = node.op == Op::kPow || node.op == Op::kFmod || node.op == Op::kRemainder ||
                        node.op == Op::kGcd || node.op == Op::kLcm;
    if (!exists) {
      return absl::InvalidArgumentError(absl::StrCat(name, " of integers"));
    }
    s = Scalar::kI64;
  }
  std::vector<Value*> operands;
  for (int i = 0; i < node.arity; ++i) {
    ASSIGN_OR_RETURN(Value* const x, LowerAs(node.operands[static_cast<size_t>(i)], result));
    operands.push_back(emitter_.Convert(x, result, s));
  }
  const char* const suffix = s == Scalar::kI64 ? "_i64" : s == Scalar::kF32 ? "_f32" : "_f64";
  const std::string function = absl::StrCat(name, suffix);
  if (width_ == 1)
    return Typed{emitter_.Convert(emitter_.CallMath(function, emitter_.TypeOf(s), operands), s, result),
                 result};
  // The math functions take scalars.
  Value* values = llvm::UndefValue::get(emitter_.TypeOf(s, width_));
  for (int lane = 0; lane < width_; ++lane) {
    std::vector<Value*> scalars;
    for (Value* const operand : operands)
      scalars.push_back(emitter_.ir().CreateExtractElement(operand, static_cast<uint64_t>(lane)));
    values = emitter_.ir().CreateInsertElement(
        values, emitter_.CallMath(function, emitter_.TypeOf(s), scalars), static_cast<uint64_t>(lane));
  }
  return Typed{emitter_.Convert(values, s, result), result};
}

}  // namespace xpud::kernels
