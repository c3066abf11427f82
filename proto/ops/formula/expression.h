// The scalar DAG of a formula of the op table. Nodes are hash-consed: equal subexpressions are one node. A
// plain value; thread-compatible.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace xpud::formula {

// The variables of formulas; proto/ops/op_table.h defines them.
enum class Variable : uint8_t {
  kA,
  kB,
  kC,
  kD,
  kE,
  kF,
  kG,
  kH,
  kIndex,
  kPosition,
  kCount,
  kP,
  kQ,
  kR,
  kS,
  kP2,
  kQ2,
  kR2,
  kS2
};
inline constexpr int kNumVariables = 19;

enum class Op : uint8_t {
  kVariable,
  kInteger,
  kReal,
  kPi,
  kInf,
  kNan,
  kLowest,
  kHighest,
  kEps,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kNeg,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kNot,
  kAnd,
  kOr,
  kBitAnd,
  kBitOr,
  kBitXor,
  kBitNot,
  kShl,
  kShr,
  kAbs,
  kSqrt,
  kRsqrt,
  kExp,
  kExp2,
  kExpm1,
  kLog,
  kLog2,
  kLog10,
  kLog1p,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kTanh,
  kAsinh,
  kAcosh,
  kAtanh,
  kErf,
  kErfc,
  kErfinv,
  kLgamma,
  kSigmoid,
  kFloor,
  kCeil,
  kRound,
  kTrunc,
  kSign,
  kMin,
  kMax,
  kFmin,
  kFmax,
  kPow,
  kAtan2,
  kFmod,
  kRemainder,
  kFloordiv,
  kTruncdiv,
  kHypot,
  kCopysign,
  kWhere,
  kIsnan,
  kIsinf,
  kIsfinite,
  kFma,
  kStored,
  // Functions of special_functions.h.
  kDigamma,
  kZeta,
  kIgamma,
  kIgammac,
  kErfcx,
  kLogndtr,
  kNdtri,
  kI0,
  kI1,
  kI0e,
  kI1e,
  kK0,
  kK1,
  kK0e,
  kK1e,
  kJ0,
  kJ1,
  kY0,
  kY1,
  kMantissa,
  kExponent,
  kNextafter,
  kAiry,
  kChebt,
  kChebu,
  kChebv,
  kChebw,
  kHermh,
  kHerme,
  kLaguerre,
  kLegendre,
  kGcd,
  kLcm,
  kRand,
  kRandn,
  kRandint,
  kRandgamma,
  kRandpoisson,
  kRandbinomial,
};

using NodeId = int32_t;

struct Node {
  Op op;
  uint8_t arity = 0;
  Variable variable = Variable::kA;  // kVariable
  std::array<NodeId, 4> operands{};  // `arity` of them
  int64_t integer = 0;               // kInteger
  double real = 0;                   // kReal
  bool operator==(const Node&) const = default;
};

class Expression {
 public:
  // Returns the id of a node equal to `node`; adds it if there is none.
  NodeId Add(const Node& node);
  const Node& operator[](NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  size_t size() const { return nodes_.size(); }
  bool Uses(Variable variable) const;
  bool UsesRandom() const;

 private:
  std::vector<Node> nodes_;
};

constexpr bool IsSpecial(Op op) { return op >= Op::kDigamma && op <= Op::kLcm; }

// Returns the function `name` of `arity` operands, or kVariable if there is none.
Op FunctionNamed(std::string_view name, int arity);
// Returns the name of a function, or nothing if `op` is none. Ends with a zero.
std::string_view NameOf(Op op);

}  // namespace xpud::formula
