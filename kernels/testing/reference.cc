#include "kernels/testing/reference.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/testing/special_reference.h"
#include "proto/base/check.h"

namespace xpud::kernels {

std::array<uint32_t, 4> ReferencePhilox(uint64_t seed, uint64_t block) {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0};
  std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    if (round > 0) {
      key[0] += 0x9E3779B9;
      key[1] += 0xBB67AE85;
    }
    const uint64_t x = uint64_t{0xD2511F53} * c[0], y = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(y >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(y),
         static_cast<uint32_t>(x >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(x)};
  }
  return c;
}

uint64_t ReferenceEvaluator::Bits64(int64_t seed, int64_t offset) const {
  const int64_t i = static_cast<int64_t>(variables[static_cast<size_t>(Variable::kIndex)]);
  const auto words = ReferencePhilox(static_cast<uint64_t>(seed), static_cast<uint64_t>(offset + i / 2));
  const size_t first = static_cast<size_t>(i % 2) * 2;
  return uint64_t{words[first + 1]} << 32 | words[first];
}

Exact ReferenceEvaluator::Evaluate(NodeId id) {
  Exact value = EvaluateNode(expression_[id]);
  // Intermediate results overflow when those of the compute type do.
  const Exact limit = compute_ == ops::DType::kFloat64 ? std::numeric_limits<double>::max()
                                                       : std::numeric_limits<float>::max();
  if (floating() && std::fabs(value) > limit)
    value = std::copysign(std::numeric_limits<Exact>::infinity(), value);
  const Exact least = compute_ == ops::DType::kFloat64 ? std::numeric_limits<double>::denorm_min()
                                                       : std::numeric_limits<float>::denorm_min();
  if (floating() && std::fabs(value) < least / 2) value = std::copysign(Exact{0}, value);
  // Seeds and offsets are exact.
  const bool seed = expression_[id].op == Op::kVariable && expression_[id].variable >= Variable::kC &&
                    std::fabs(value) > 1e9L;
  if (std::isfinite(value) && !seed) magnitude = std::max(magnitude, std::fabs(value));
  return value;
}

Exact ReferenceEvaluator::EvaluateNode(const Node& node) {
  constexpr Exact kInf = std::numeric_limits<Exact>::infinity();
  if (const auto special = SpecialReference(node.op)) {
    return special(Evaluate(node.operands[0]), node.arity > 1 ? Evaluate(node.operands[1]) : 0);
  }
  const auto at = [&](int i) { return Evaluate(node.operands[static_cast<size_t>(i)]); };
  const auto integer = [&](int i) { return static_cast<int64_t>(at(i)); };
  switch (node.op) {
    case Op::kVariable:
      return variables[static_cast<size_t>(node.variable)];
    case Op::kInteger:
      return static_cast<Exact>(node.integer);
    case Op::kReal:
      return node.real;
    case Op::kPi:
      return M_PIl;
    case Op::kInf:
      return kInf;
    case Op::kNan:
      return std::nan("");
    case Op::kLowest:
      return floating() ? -kInf : -Highest() - 1;
    case Op::kHighest:
      return floating() ? kInf : Highest();
    case Op::kEps:
      return compute_ == ops::DType::kFloat64 ? 0x1p-52L : 0x1p-23L;
    case Op::kAdd:
      return at(0) + at(1);
    case Op::kSub:
      return at(0) - at(1);
    case Op::kMul:
      return at(0) * at(1);
    case Op::kDiv:
      return at(0) / at(1);
    case Op::kNeg:
      return -at(0);
    case Op::kEq:
      return at(0) == at(1);
    case Op::kNe:
      return at(0) != at(1);
    case Op::kLt:
      return at(0) < at(1);
    case Op::kLe:
      return at(0) <= at(1);
    case Op::kGt:
      return at(0) > at(1);
    case Op::kGe:
      return at(0) >= at(1);
    case Op::kNot:
      return at(0) == 0;
    case Op::kAnd:
      return at(0) != 0 && at(1) != 0;
    case Op::kOr:
      return at(0) != 0 || at(1) != 0;
    case Op::kBitAnd:
      return integer(0) & integer(1);
    case Op::kBitOr:
      return integer(0) | integer(1);
    case Op::kBitXor:
      return integer(0) ^ integer(1);
    case Op::kShl:
      // ATen: 0 for a count that is negative or too large.
      return at(1) < 0 || at(1) >= Width()
                 ? 0
                 : static_cast<int64_t>(static_cast<uint64_t>(integer(0)) << integer(1));
    case Op::kShr:
      return integer(0) >> (at(1) < 0 || at(1) >= Width() ? 63 : integer(1));
    case Op::kGcd:
      return std::gcd(integer(0), integer(1));
    case Op::kLcm:
      return std::lcm(integer(0), integer(1));
    case Op::kMantissa: {
      int exponent;
      return std::frexp(at(0), &exponent);
    }
    case Op::kExponent: {
      int exponent = 0;
      if (std::isfinite(at(0))) std::frexp(at(0), &exponent);
      return exponent;
    }
    case Op::kNextafter:
      if (compute_ == ops::DType::kFloat64)
        return std::nextafter(static_cast<double>(at(0)), static_cast<double>(at(1)));
      return std::nextafter(static_cast<float>(at(0)), static_cast<float>(at(1)));
    case Op::kBitNot:
      return compute_ == ops::DType::kBool ? !integer(0) : ~integer(0);
    case Op::kAbs:
      return std::fabs(at(0));
    case Op::kSqrt:
      return std::sqrt(at(0));
    case Op::kRsqrt:
      return 1 / std::sqrt(at(0));
    case Op::kExp:
      return std::exp(at(0));
    case Op::kExp2:
      return std::exp2(at(0));
    case Op::kExpm1:
      return std::expm1(at(0));
    case Op::kLog:
      return std::log(at(0));
    case Op::kLog2:
      return std::log2(at(0));
    case Op::kLog10:
      return std::log10(at(0));
    case Op::kLog1p:
      return std::log1p(at(0));
    case Op::kSin:
      return std::sin(at(0));
    case Op::kCos:
      return std::cos(at(0));
    case Op::kTan:
      return std::tan(at(0));
    case Op::kAsin:
      return std::asin(at(0));
    case Op::kAcos:
      return std::acos(at(0));
    case Op::kAtan:
      return std::atan(at(0));
    case Op::kSinh:
      return std::sinh(at(0));
    case Op::kCosh:
      return std::cosh(at(0));
    case Op::kTanh:
      return std::tanh(at(0));
    case Op::kAsinh:
      return std::asinh(at(0));
    case Op::kAcosh:
      return std::acosh(at(0));
    case Op::kAtanh:
      return std::atanh(at(0));
    case Op::kErf:
      return std::erf(at(0));
    case Op::kErfc:
      return std::erfc(at(0));
    case Op::kSigmoid: {
      // As in ATen: 0 if the exponential overflows.
      const Exact exponential = std::exp(-at(0));
      return compute_ != ops::DType::kFloat64 && exponential > std::numeric_limits<float>::max()
                 ? 0
                 : 1 / (1 + exponential);
    }
    case Op::kFloor:
      return std::floor(at(0));
    case Op::kCeil:
      return std::ceil(at(0));
    case Op::kRound:
      return std::nearbyint(at(0));
    case Op::kTrunc:
      return std::trunc(at(0));
    case Op::kSign:
      return static_cast<Exact>((at(0) > 0) - (at(0) < 0));
    case Op::kMin:
      return std::isnan(at(0)) || std::isnan(at(1)) ? std::nan("") : std::fmin(at(0), at(1));
    case Op::kMax:
      return std::isnan(at(0)) || std::isnan(at(1)) ? std::nan("") : std::fmax(at(0), at(1));
    case Op::kFmin:
      return std::fmin(at(0), at(1));
    case Op::kFmax:
      return std::fmax(at(0), at(1));
    case Op::kPow: {
      if (floating() || at(1) >= 0) return std::pow(at(0), at(1));
      return at(0) == 1 ? 1 : at(0) == -1 ? (integer(1) % 2 != 0 ? -1 : 1) : 0;
    }
    case Op::kAtan2:
      return std::atan2(at(0), at(1));
    case Op::kFmod:
      return at(1) == 0 && !floating() ? 0 : std::fmod(at(0), at(1));
    case Op::kRemainder: {
      if (at(1) == 0 && !floating()) return 0;
      const Exact rest = std::fmod(at(0), at(1));
      return rest != 0 && (rest < 0) != (at(1) < 0) ? rest + at(1) : rest;
    }
    case Op::kHypot:
      return std::hypot(at(0), at(1));
    case Op::kCopysign:
      return std::copysign(at(0), at(1));
    case Op::kWhere:
      return at(0) != 0 ? at(1) : at(2);
    case Op::kIsnan:
      return std::isnan(at(0));
    case Op::kIsinf:
      return std::isinf(at(0));
    case Op::kIsfinite:
      return std::isfinite(at(0));
    case Op::kStored:
      return RoundTo(stored_, at(0));
    case Op::kFma:
      return std::fma(at(0), at(1), at(2));
    case Op::kFloordiv: {
      // ATen's div_floor.
      if (at(1) == 0) return floating() ? at(0) / at(1) : 0;
      const Exact rest = std::fmod(at(0), at(1));
      const Exact quotient = (at(0) - rest) / at(1);
      return rest != 0 && (rest < 0) != (at(1) < 0) ? quotient - 1 : quotient;
    }
    case Op::kLgamma:
      return std::lgamma(at(0));
    case Op::kErfinv: {
      const Exact y = at(0);
      if (!(std::fabs(y) <= 1)) return std::nan("");
      if (std::fabs(y) == 1) return std::copysign(kInf, y);
      Exact low = -8, high = 8;
      for (int step = 0; step < 90; ++step) (std::erf((low + high) / 2) < y ? low : high) = (low + high) / 2;
      return (low + high) / 2;
    }
    case Op::kRandint:
      return static_cast<Exact>(static_cast<int64_t>(Bits64(integer(0), integer(1))));
    case Op::kTruncdiv:
      return at(1) == 0 && !floating() ? 0 : std::trunc(at(0) / at(1));
    case Op::kRand: {
      if (compute_ == ops::DType::kFloat64)
        return static_cast<Exact>(Bits64(integer(0), integer(1)) >> 11) * 0x1p-53L;
      const int64_t i = static_cast<int64_t>(variables[static_cast<size_t>(Variable::kIndex)]);
      const auto words =
          ReferencePhilox(static_cast<uint64_t>(integer(0)), static_cast<uint64_t>(integer(1) + i / 4));
      const uint32_t word = words[static_cast<size_t>(i % 4)];
      return (word >> 8) * 0x1p-24L;
    }
    case Op::kRandn: {
      const int64_t i = static_cast<int64_t>(variables[static_cast<size_t>(Variable::kIndex)]);
      const auto words =
          ReferencePhilox(static_cast<uint64_t>(integer(0)), static_cast<uint64_t>(integer(1) + i / 4));
      const size_t pair = static_cast<size_t>(i % 4 / 2) * 2;
      const Exact radius = std::sqrt(-2 * std::log((words[pair] + 1.0L) * 0x1p-32L));
      const Exact angle = 2 * M_PIl * words[pair + 1] * 0x1p-32L;
      return radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
    }
    default:
      break;
  }
  XPUD_CHECK(!"an operation that the reference lacks");
  return 0;
}

}  // namespace xpud::kernels
