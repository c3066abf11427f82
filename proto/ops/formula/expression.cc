#include "proto/ops/formula/expression.h"

#include <algorithm>

namespace xpud::formula {
namespace {

struct Function {
  std::string_view name;
  int arity;
  Op op;
};

constexpr Function kFunctions[] = {
    {"abs", 1, Op::kAbs},
    {"neg", 1, Op::kNeg},
    {"sqrt", 1, Op::kSqrt},
    {"rsqrt", 1, Op::kRsqrt},
    {"exp", 1, Op::kExp},
    {"exp2", 1, Op::kExp2},
    {"expm1", 1, Op::kExpm1},
    {"log", 1, Op::kLog},
    {"log2", 1, Op::kLog2},
    {"log10", 1, Op::kLog10},
    {"log1p", 1, Op::kLog1p},
    {"sin", 1, Op::kSin},
    {"cos", 1, Op::kCos},
    {"tan", 1, Op::kTan},
    {"asin", 1, Op::kAsin},
    {"acos", 1, Op::kAcos},
    {"atan", 1, Op::kAtan},
    {"sinh", 1, Op::kSinh},
    {"cosh", 1, Op::kCosh},
    {"tanh", 1, Op::kTanh},
    {"asinh", 1, Op::kAsinh},
    {"acosh", 1, Op::kAcosh},
    {"atanh", 1, Op::kAtanh},
    {"erf", 1, Op::kErf},
    {"erfc", 1, Op::kErfc},
    {"erfinv", 1, Op::kErfinv},
    {"lgamma", 1, Op::kLgamma},
    {"sigmoid", 1, Op::kSigmoid},
    {"floor", 1, Op::kFloor},
    {"ceil", 1, Op::kCeil},
    {"round", 1, Op::kRound},
    {"trunc", 1, Op::kTrunc},
    {"sign", 1, Op::kSign},
    {"sgn", 1, Op::kSign},
    {"isnan", 1, Op::kIsnan},
    {"isinf", 1, Op::kIsinf},
    {"isfinite", 1, Op::kIsfinite},
    {"min", 2, Op::kMin},
    {"max", 2, Op::kMax},
    {"fmin", 2, Op::kFmin},
    {"fmax", 2, Op::kFmax},
    {"pow", 2, Op::kPow},
    {"atan2", 2, Op::kAtan2},
    {"fmod", 2, Op::kFmod},
    {"remainder", 2, Op::kRemainder},
    {"floordiv", 2, Op::kFloordiv},
    {"truncdiv", 2, Op::kTruncdiv},
    {"hypot", 2, Op::kHypot},
    {"copysign", 2, Op::kCopysign},
    {"rand", 2, Op::kRand},
    {"randn", 2, Op::kRandn},
    {"randint", 2, Op::kRandint},
    {"where", 3, Op::kWhere},
    {"fma", 3, Op::kFma},
    {"stored", 1, Op::kStored},
    {"digamma", 1, Op::kDigamma},
    {"zeta", 2, Op::kZeta},
    {"igamma", 2, Op::kIgamma},
    {"igammac", 2, Op::kIgammac},
    {"erfcx", 1, Op::kErfcx},
    {"logndtr", 1, Op::kLogndtr},
    {"ndtri", 1, Op::kNdtri},
    {"i0", 1, Op::kI0},
    {"i1", 1, Op::kI1},
    {"i0e", 1, Op::kI0e},
    {"i1e", 1, Op::kI1e},
    {"k0", 1, Op::kK0},
    {"k1", 1, Op::kK1},
    {"k0e", 1, Op::kK0e},
    {"k1e", 1, Op::kK1e},
    {"j0", 1, Op::kJ0},
    {"j1", 1, Op::kJ1},
    {"y0", 1, Op::kY0},
    {"y1", 1, Op::kY1},
    {"mantissa", 1, Op::kMantissa},
    {"exponent", 1, Op::kExponent},
    {"nextafter", 2, Op::kNextafter},
    {"airy", 1, Op::kAiry},
    {"chebt", 2, Op::kChebt},
    {"chebu", 2, Op::kChebu},
    {"chebv", 2, Op::kChebv},
    {"chebw", 2, Op::kChebw},
    {"hermh", 2, Op::kHermh},
    {"herme", 2, Op::kHerme},
    {"laguerre", 2, Op::kLaguerre},
    {"legendre", 2, Op::kLegendre},
    {"gcd", 2, Op::kGcd},
    {"lcm", 2, Op::kLcm},
    {"randgamma", 3, Op::kRandgamma},
    {"randpoisson", 3, Op::kRandpoisson},
    {"randbinomial", 4, Op::kRandbinomial},
};

}  // namespace

NodeId Expression::Add(const Node& node) {
  const auto found = std::find(nodes_.begin(), nodes_.end(), node);
  if (found != nodes_.end()) return static_cast<NodeId>(found - nodes_.begin());
  nodes_.push_back(node);
  return static_cast<NodeId>(nodes_.size() - 1);
}

bool Expression::Uses(Variable variable) const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [&](const Node& n) { return n.op == Op::kVariable && n.variable == variable; });
}

bool Expression::UsesRandom() const {
  return std::any_of(nodes_.begin(), nodes_.end(), [](const Node& n) { return n.op >= Op::kRand; });
}

Op FunctionNamed(std::string_view name, int arity) {
  for (const Function& f : kFunctions) {
    if (f.name == name && f.arity == arity) return f.op;
  }
  return Op::kVariable;
}

std::string_view NameOf(Op op) {
  for (const Function& f : kFunctions) {
    if (f.op == op) return f.name;
  }
  return {};
}

}  // namespace xpud::formula
