#include "kernels/testing/special_reference.h"

#include <cmath>
#include <limits>

namespace xpud::kernels {
namespace {

constexpr Exact kNan = std::numeric_limits<Exact>::quiet_NaN(), kInf = std::numeric_limits<Exact>::infinity();

bool IsPole(Exact x) { return x <= 0 && x == std::floor(x); }

// The sum of (q + k)^-s: `kTerms` terms, and Euler and Maclaurin's formula for the rest.
Exact Zeta(Exact s, Exact q) {
  constexpr int kTerms = 400;
  if (std::isnan(s) || std::isnan(q) || s < 1) return kNan;
  if (s == 1 || IsPole(q)) return kInf;
  if (q < 0 && s != std::trunc(s)) return kNan;
  Exact sum = 0;
  for (int k = 0; k < kTerms; ++k) sum += std::pow(q + k, -s);
  const Exact w = q + kTerms, power = std::pow(w, -s);
  return sum + power * w / (s - 1) + power / 2 + s * power / w / 12 -
         s * (s + 1) * (s + 2) * power / (w * w * w) / 720;
}

// psi(x + n) less the terms of the recurrence.
Exact Digamma(Exact x, Exact) {
  constexpr int kTerms = 400;
  if (x == 0) return std::copysign(kInf, -x);
  if (IsPole(x)) return kNan;
  Exact sum = 0;
  for (int k = 0; k < kTerms; ++k) sum += 1 / (x + k);
  const Exact z = x + kTerms, v = 1 / (z * z);
  return std::log(z) - 1 / (2 * z) - v / 12 + v * v / 120 - sum;
}

// P(a, x) as a series.
Exact LowerGamma(Exact a, Exact x) {
  if (!(a >= 0) || !(x >= 0)) return kNan;
  if (a == 0) return x == 0 ? kNan : 1;
  if (x == 0) return 0;
  Exact term = 1 / a, sum = term;
  for (int k = 1; k < 2000; ++k) sum += term *= x / (a + k);
  return sum * std::exp(a * std::log(x) - x - std::lgamma(a));
}

Exact Ndtri(Exact p, Exact) {
  if (!(p >= 0 && p <= 1)) return kNan;
  if (p == 0 || p == 1) return p == 0 ? -kInf : kInf;
  Exact low = -40, high = 40;
  for (int step = 0; step < 120; ++step) {
    const Exact middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(Exact{2})) / 2 < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

// The n-th value of the recurrence p[k + 1] = next(k, p[k], p[k - 1]).
template <class Next>
Exact Polynomial(Exact degree, Exact first, Next next) {
  const auto n = static_cast<int>(degree);
  if (n < 0) return 0;
  Exact last = 1, value = first;
  for (int k = 1; k < n; ++k) {
    const Exact following = next(k, value, last);
    last = value;
    value = following;
  }
  return n == 0 ? 1 : value;
}
Exact ChebyshevOf(Exact x, Exact n, Exact first) {
  return Polynomial(n, first, [x](int, Exact p, Exact q) { return 2 * x * p - q; });
}

// Ai by Bessel functions of order 1/3.
Exact Airy(Exact x, Exact) {
  const Exact a = std::fabs(x), z = 2 * a * std::sqrt(a) / 3, third = Exact{1} / 3;
  if (x == 0) return 0.355028053887817239260063186004183177L;
  if (x > 0) return std::sqrt(a / 3) / M_PIl * std::cyl_bessel_k(third, z);
  // J of order -1/3, from J and Y of order 1/3
  const Exact j = std::cyl_bessel_j(third, z), y = std::cyl_neumann(third, z);
  return std::sqrt(a) / 3 * (j + std::cos(M_PIl / 3) * j - std::sin(M_PIl / 3) * y);
}

template <int kOrder>
Exact I(Exact x) {
  const Exact y = std::cyl_bessel_i(Exact{kOrder}, std::fabs(x));
  return kOrder == 1 && x < 0 ? -y : y;
}
template <int kOrder>
Exact K(Exact x) {
  return x > 0 ? std::cyl_bessel_k(Exact{kOrder}, x) : x == 0 ? kInf : kNan;
}
template <int kOrder>
Exact J(Exact x) {
  const Exact y = std::cyl_bessel_j(Exact{kOrder}, std::fabs(x));
  return kOrder == 1 && x < 0 ? -y : y;
}
template <int kOrder>
Exact Y(Exact x) {
  return x > 0 ? std::cyl_neumann(Exact{kOrder}, x) : x == 0 ? -kInf : kNan;
}

}  // namespace

Exact (*SpecialReference(Op op))(Exact, Exact) {
  switch (op) {
    case Op::kDigamma:
      return Digamma;
    case Op::kZeta:
      return Zeta;
    case Op::kIgamma:
      return LowerGamma;
    case Op::kIgammac:
      return [](Exact a, Exact x) { return 1 - LowerGamma(a, x); };
    case Op::kErfcx:
      return [](Exact x, Exact) { return std::exp(x * x) * std::erfc(x); };
    case Op::kLogndtr:
      return [](Exact x, Exact) { return std::log(std::erfc(-x / std::sqrt(Exact{2})) / 2); };
    case Op::kNdtri:
      return Ndtri;
    case Op::kI0:
      return [](Exact x, Exact) { return I<0>(x); };
    case Op::kI1:
      return [](Exact x, Exact) { return I<1>(x); };
    case Op::kI0e:
      return [](Exact x, Exact) { return I<0>(x) * std::exp(-std::fabs(x)); };
    case Op::kI1e:
      return [](Exact x, Exact) { return I<1>(x) * std::exp(-std::fabs(x)); };
    case Op::kK0:
      return [](Exact x, Exact) { return K<0>(x); };
    case Op::kK1:
      return [](Exact x, Exact) { return K<1>(x); };
    case Op::kK0e:
      return [](Exact x, Exact) { return K<0>(x) * std::exp(x); };
    case Op::kK1e:
      return [](Exact x, Exact) { return K<1>(x) * std::exp(x); };
    case Op::kJ0:
      return [](Exact x, Exact) { return J<0>(x); };
    case Op::kJ1:
      return [](Exact x, Exact) { return J<1>(x); };
    case Op::kY0:
      return [](Exact x, Exact) { return Y<0>(x); };
    case Op::kY1:
      return [](Exact x, Exact) { return Y<1>(x); };
    case Op::kAiry:
      return Airy;
    case Op::kChebt:
      return [](Exact x, Exact n) { return ChebyshevOf(x, n, x); };
    case Op::kChebu:
      return [](Exact x, Exact n) { return ChebyshevOf(x, n, 2 * x); };
    case Op::kChebv:
      return [](Exact x, Exact n) { return ChebyshevOf(x, n, 2 * x - 1); };
    case Op::kChebw:
      return [](Exact x, Exact n) { return ChebyshevOf(x, n, 2 * x + 1); };
    case Op::kHermh:
      return [](Exact x, Exact n) {
        return Polynomial(n, 2 * x, [x](int k, Exact p, Exact q) { return 2 * (x * p - k * q); });
      };
    case Op::kHerme:
      return [](Exact x, Exact n) {
        return Polynomial(n, x, [x](int k, Exact p, Exact q) { return x * p - k * q; });
      };
    case Op::kLaguerre:
      return [](Exact x, Exact n) {
        return Polynomial(n, 1 - x,
                          [x](int k, Exact p, Exact q) { return ((2 * k + 1 - x) * p - k * q) / (k + 1); });
      };
    case Op::kLegendre:
      return [](Exact x, Exact n) {
        return Polynomial(n, x,
                          [x](int k, Exact p, Exact q) { return ((2 * k + 1) * x * p - k * q) / (k + 1); });
      };
    default:
      return nullptr;
  }
}

}  // namespace xpud::kernels
