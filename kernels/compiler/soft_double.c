// Arithmetic of doubles in integers, for devices that have none: see soft_double.h. A double is its bits.
// Each function rounds to the nearest, ties to even, as IEEE 754 says, with subnormals, infinities and NaN,
// so that emulated kernels compute the same as others. 128-bit integers are not used, because SPIR-V has
// none.
#include <stdbool.h>
#include <stdint.h>

// Functions of structures must not remain: not every consumer of SPIR-V takes them.
#define INLINE static inline __attribute__((always_inline))

#define FRACTION 0x000fffffffffffffull
#define HIDDEN 0x0010000000000000ull
#define INFINITE 0x7ff0000000000000ull
#define NOT_A_NUMBER 0x7ff8000000000000ull
#define SIGN 0x8000000000000000ull

INLINE bool IsNan(uint64_t x) { return (x & ~SIGN) > INFINITE; }
INLINE bool IsInfinite(uint64_t x) { return (x & ~SIGN) == INFINITE; }
INLINE bool IsZero(uint64_t x) { return (x & ~SIGN) == 0; }
INLINE uint64_t Quiet(uint64_t x) { return x | 0x0008000000000000ull; }

// A finite number other than 0: significand * 2^(exponent - 52), with 2^52 <= significand < 2^53.
typedef struct {
  uint64_t significand;
  int32_t exponent;
} Parts;

INLINE Parts PartsOf(uint64_t x) {
  const uint64_t fraction = x & FRACTION;
  const int32_t biased = (int32_t)(x >> 52) & 0x7ff;
  if (biased != 0) return (Parts){fraction | HIDDEN, biased - 1023};
  const int32_t shift = __builtin_clzll(fraction) - 11;
  return (Parts){fraction << shift, -1022 - shift};
}

// Shifts right; the lowest bit of the result is set if a bit that was set is lost.
INLINE uint64_t ShiftSticky(uint64_t x, int32_t by) {
  if (by <= 0) return x;
  if (by > 63) return x != 0;
  return x >> by | ((x << (64 - by)) != 0);
}

// Returns the double nearest to significand * 2^(exponent - 62), with 2^62 <= significand < 2^63. Its lowest
// bit may stand for any rest.
INLINE uint64_t Round(uint64_t sign, int32_t exponent, uint64_t significand) {
  const int32_t biased = exponent + 1023;
  if (biased >= 0x7ff) return sign | INFINITE;
  if (biased < 1) significand = ShiftSticky(significand, 1 - biased);
  const uint64_t rounded = (significand + 0x1ff + (significand >> 10 & 1)) >> 10;
  // A significand of 53 bits adds 1 to the exponent.
  return sign | ((biased < 1 ? 0 : (uint64_t)(biased - 1) << 52) + rounded);
}

// Like Round, for any significand but 0.
INLINE uint64_t Normalise(uint64_t sign, int32_t exponent, uint64_t significand) {
  const int32_t zeros = __builtin_clzll(significand);
  if (zeros == 0) return Round(sign, exponent + 1, ShiftSticky(significand, 1));
  return Round(sign, exponent - (zeros - 1), significand << (zeros - 1));
}

// high * 2^54 + low; both operands have 53 bits.
typedef struct {
  uint64_t high, low;
} Product;

INLINE Product Multiply(uint64_t a, uint64_t b) {
  const uint64_t kLow = (1ull << 27) - 1;
  const uint64_t a1 = a >> 27, a0 = a & kLow, b1 = b >> 27, b0 = b & kLow;
  const uint64_t lowest = a0 * b0;
  const uint64_t middle = a1 * b0 + a0 * b1 + (lowest >> 27);
  return (Product){a1 * b1 + (middle >> 27), (middle & kLow) << 27 | (lowest & kLow)};
}

INLINE uint64_t AddNumbers(uint64_t a, uint64_t b) {
  if ((a & ~SIGN) < (b & ~SIGN)) {
    const uint64_t swapped = a;
    a = b, b = swapped;
  }
  // |a| >= |b|
  if (IsNan(a)) return Quiet(a);
  if (IsInfinite(a)) return IsInfinite(b) && a != b ? NOT_A_NUMBER : a;
  if (IsZero(a)) return a & b;  // -0 only if both are
  if (IsZero(b)) return a;
  const Parts x = PartsOf(a), y = PartsOf(b);
  const uint64_t large = x.significand << 9, small = ShiftSticky(y.significand << 9, x.exponent - y.exponent);
  const uint64_t result = ((a ^ b) & SIGN) != 0 ? large - small : large + small;
  return result == 0 ? 0 : Normalise(a & SIGN, x.exponent + 1, result);
}

uint64_t xpud_soft_add(uint64_t a, uint64_t b) { return AddNumbers(a, b); }

uint64_t xpud_soft_mul(uint64_t a, uint64_t b) {
  const uint64_t sign = (a ^ b) & SIGN;
  if (IsNan(a)) return Quiet(a);
  if (IsNan(b)) return Quiet(b);
  if (IsInfinite(a) || IsInfinite(b)) return IsZero(a) || IsZero(b) ? NOT_A_NUMBER : sign | INFINITE;
  if (IsZero(a) || IsZero(b)) return sign;
  const Parts x = PartsOf(a), y = PartsOf(b);
  const Product p = Multiply(x.significand, y.significand);
  // The product has 105 or 106 bits; the upper 62 remain.
  const uint64_t kept = p.high << 10 | p.low >> 44 | ((p.low << 20) != 0);
  return Normalise(sign, x.exponent + y.exponent + 2, kept);
}

uint64_t xpud_soft_div(uint64_t a, uint64_t b) {
  const uint64_t sign = (a ^ b) & SIGN;
  if (IsNan(a)) return Quiet(a);
  if (IsNan(b)) return Quiet(b);
  if (IsInfinite(a)) return IsInfinite(b) ? NOT_A_NUMBER : sign | INFINITE;
  if (IsInfinite(b)) return sign;
  if (IsZero(b)) return IsZero(a) ? NOT_A_NUMBER : sign | INFINITE;
  if (IsZero(a)) return sign;
  const Parts x = PartsOf(a), y = PartsOf(b);
  uint64_t rest = x.significand, quotient = 0;
#pragma clang loop unroll(disable)
  for (int i = 0; i < 62; ++i) {
    const bool fits = rest >= y.significand;
    quotient = quotient << 1 | fits;
    rest = (fits ? rest - y.significand : rest) << 1;
  }
  return Normalise(sign, x.exponent - y.exponent + 1, quotient | (rest != 0));
}

uint64_t xpud_soft_sqrt(uint64_t a) {
  if (IsNan(a)) return Quiet(a);
  if (IsZero(a)) return a;
  if ((a & SIGN) != 0) return NOT_A_NUMBER;
  if (IsInfinite(a)) return a;
  const Parts x = PartsOf(a);
  const int32_t odd = x.exponent & 1;
  // Two bits of the radicand for each bit of the root, whose first bit is 2^52.
  uint64_t radicand = x.significand << (10 + odd), root = 0, rest = 0;
#pragma clang loop unroll(disable)
  for (int i = 0; i < 56; ++i) {
    rest = rest << 2 | radicand >> 62;
    radicand <<= 2;
    const uint64_t trial = root << 2 | 1;
    const bool fits = rest >= trial;
    rest = fits ? rest - trial : rest;
    root = root << 1 | fits;
  }
  return Normalise(0, (x.exponent - odd) / 2 + 7, root | (rest != 0));
}

// A number of 128 bits. Carries are computed from bits, because not every consumer of SPIR-V has OpIAddCarry.
typedef struct {
  uint64_t high, low;
} Wide;

INLINE Wide ShiftWide(Wide x, int32_t by) {
  if (by <= 0) return x;
  if (by > 127) return (Wide){0, (x.high | x.low) != 0};
  if (by > 63) return (Wide){0, ShiftSticky(x.high, by - 64) | (x.low != 0)};
  const int32_t back = 63 - by;  // in two steps, so that no funnel shift is made of it
  return (Wide){x.high >> by, x.low >> by | x.high << 1 << back | ((x.low << 1 << back) != 0)};
}

uint64_t xpud_soft_fma(uint64_t a, uint64_t b, uint64_t c) {
  const uint64_t sign = (a ^ b) & SIGN;
  if (IsNan(a)) return Quiet(a);
  if (IsNan(b)) return Quiet(b);
  if (IsInfinite(a) || IsInfinite(b)) {
    if (IsNan(c)) return Quiet(c);
    const bool undefined = IsZero(a) || IsZero(b) || (IsInfinite(c) && ((sign ^ c) & SIGN) != 0);
    return undefined ? NOT_A_NUMBER : sign | INFINITE;
  }
  if (IsNan(c)) return Quiet(c);
  if (IsInfinite(c)) return c;
  if (IsZero(a) || IsZero(b)) return AddNumbers(sign, c);
  const Parts x = PartsOf(a), y = PartsOf(b);
  const Product p = Multiply(x.significand, y.significand);
  // Bit 124 or 125 of `product` is its first one; its value is product * 2^(exponent - 124).
  int32_t exponent = x.exponent + y.exponent;
  Wide product = {p.high << 10 | p.low >> 44, p.low << 20};
  Wide sum = product;
  uint64_t sum_sign = sign;
  if (!IsZero(c)) {
    const Parts z = PartsOf(c);
    Wide addend = {z.significand << 8, 0};  // bit 124 is the first one
    const int32_t distance = exponent - z.exponent;
    if (distance < 0) {
      product = ShiftWide(product, -distance);
      exponent = z.exponent;
    } else {
      addend = ShiftWide(addend, distance);
    }
    if (((sign ^ c) & SIGN) == 0) {
      sum.low = product.low + addend.low;
      sum.high = product.high + addend.high +
                 (((product.low & addend.low) | ((product.low | addend.low) & ~sum.low)) >> 63);
    } else {
      const bool swap =
          product.high < addend.high || (product.high == addend.high && product.low < addend.low);
      const Wide large = swap ? addend : product, small = swap ? product : addend;
      sum.low = large.low - small.low;
      sum.high =
          large.high - small.high - (((~large.low & small.low) | (~(large.low ^ small.low) & sum.low)) >> 63);
      sum_sign = swap ? c & SIGN : sign;
    }
  }
  if ((sum.high | sum.low) == 0) return 0;
  if (sum.high == 0) return Normalise(sum_sign, exponent - 62, sum.low);
  const int32_t zeros = __builtin_clzll(sum.high);
  const uint64_t upper = sum.high << zeros | sum.low >> 1 >> (63 - zeros);
  const uint64_t lower = sum.low << zeros;
  return Normalise(sum_sign, exponent + 2 - zeros, upper | (lower != 0));
}

// -1, 0, 1: less, equal, greater; 2: unordered.
int32_t xpud_soft_compare(uint64_t a, uint64_t b) {
  if (IsNan(a) || IsNan(b)) return 2;
  if (IsZero(a) && IsZero(b)) return 0;
  // Magnitudes are in the order of their bits.
  const int64_t x = (int64_t)((a & SIGN) != 0 ? 0 - (a & ~SIGN) : a);
  const int64_t y = (int64_t)((b & SIGN) != 0 ? 0 - (b & ~SIGN) : b);
  return x < y ? -1 : x > y;
}

uint64_t xpud_soft_from_i64(int64_t x) {
  if (x == 0) return 0;
  return Normalise(x < 0 ? SIGN : 0, 62, x < 0 ? 0 - (uint64_t)x : (uint64_t)x);
}
uint64_t xpud_soft_from_u64(uint64_t x) { return x == 0 ? 0 : Normalise(0, 62, x); }

// Returns the magnitude without its fraction; `most` if that is larger, and for infinity.
INLINE uint64_t Whole(uint64_t x, uint64_t most) {
  const int32_t exponent = ((int32_t)(x >> 52) & 0x7ff) - 1023;
  if (exponent < 0) return 0;
  if (exponent > 63) return most;
  const uint64_t significand = (x & FRACTION) | HIDDEN;
  const uint64_t whole = exponent <= 52 ? significand >> (52 - exponent) : significand << (exponent - 52);
  return whole > most ? most : whole;
}

// Beyond the range the nearest integer; of NaN 0.
int64_t xpud_soft_to_i64(uint64_t x) {
  if (IsNan(x)) return 0;
  return (int64_t)((x & SIGN) != 0 ? 0 - Whole(x, SIGN) : Whole(x, SIGN - 1));
}
uint64_t xpud_soft_to_u64(uint64_t x) { return IsNan(x) || (x & SIGN) != 0 ? 0 : Whole(x, UINT64_MAX); }

uint64_t xpud_soft_from_f32(uint32_t x) {
  const uint64_t sign = (uint64_t)(x >> 31) << 63;
  const uint32_t biased = x >> 23 & 0xff;
  uint64_t fraction = x & 0x7fffff;
  if (biased == 0xff) return sign | INFINITE | fraction << 29 | (fraction != 0 ? 0x0008000000000000ull : 0);
  if (biased != 0) return sign | (uint64_t)(biased + 896) << 52 | fraction << 29;
  if (fraction == 0) return sign;
  const int32_t shift = __builtin_clzll(fraction) - 40;
  fraction = fraction << shift & 0x7fffff;
  return sign | (uint64_t)(897 - shift) << 52 | fraction << 29;
}

uint32_t xpud_soft_to_f32(uint64_t x) {
  const uint32_t sign = (uint32_t)(x >> 63) << 31;
  if (IsNan(x)) return sign | 0x7fc00000 | ((uint32_t)(x >> 29) & 0x7fffff);
  const int32_t biased = ((int32_t)(x >> 52) & 0x7ff) - 1023 + 127;
  if (biased >= 0xff) return sign | 0x7f800000;
  if (biased < -24) return sign;
  uint64_t significand = (x & FRACTION) | HIDDEN;
  if (biased < 1) significand = ShiftSticky(significand, 1 - biased);
  const uint32_t rounded = (uint32_t)((significand + 0xfffffff + (significand >> 29 & 1)) >> 29);
  return sign | ((biased < 1 ? 0 : (uint32_t)(biased - 1) << 23) + rounded);
}

// The whole number towards zero.
uint64_t xpud_soft_trunc(uint64_t x) {
  const int32_t exponent = ((int32_t)(x >> 52) & 0x7ff) - 1023;
  if (exponent < 0) return x & SIGN;
  if (exponent >= 52) return IsNan(x) ? Quiet(x) : x;
  return x & ~(FRACTION >> exponent);
}

#define ONE 0x3ff0000000000000ull

uint64_t xpud_soft_floor(uint64_t x) {
  const uint64_t whole = xpud_soft_trunc(x);
  return whole == x || (x & SIGN) == 0 ? whole : AddNumbers(whole, ONE | SIGN);
}
uint64_t xpud_soft_ceil(uint64_t x) {
  const uint64_t whole = xpud_soft_trunc(x);
  return whole == x || (x & SIGN) != 0 ? whole : AddNumbers(whole, ONE);
}
// The nearest whole number, ties to even.
uint64_t xpud_soft_rint(uint64_t x) {
  const uint64_t kShift = 0x4330000000000000ull;  // 2^52: sums have no fraction
  const int32_t exponent = ((int32_t)(x >> 52) & 0x7ff) - 1023;
  if (exponent >= 52) return IsNan(x) ? Quiet(x) : x;
  const uint64_t sum = AddNumbers(AddNumbers(x & ~SIGN, kShift), kShift | SIGN);
  return sum | (x & SIGN);
}

// -0 is less than +0. Of a NaN and a number, the number.
INLINE uint64_t Least(uint64_t a, uint64_t b, bool most) {
  if (IsNan(a)) return b;
  if (IsNan(b)) return a;
  const int32_t order = xpud_soft_compare(a, b);
  const bool a_is_less = order == 0 ? (a & SIGN) != 0 : order < 0;
  return a_is_less != most ? a : b;
}
uint64_t xpud_soft_min(uint64_t a, uint64_t b) { return Least(a, b, false); }
uint64_t xpud_soft_max(uint64_t a, uint64_t b) { return Least(a, b, true); }
// The same, but of a NaN and a number the NaN.
uint64_t xpud_soft_minimum(uint64_t a, uint64_t b) {
  return IsNan(a) ? Quiet(a) : IsNan(b) ? Quiet(b) : Least(a, b, false);
}
uint64_t xpud_soft_maximum(uint64_t a, uint64_t b) {
  return IsNan(a) ? Quiet(a) : IsNan(b) ? Quiet(b) : Least(a, b, true);
}

// Returns a bit of LLVM's is.fpclass: signalling and quiet NaN, -infinity, negative normal, subnormal, -0,
// and the same upwards.
uint32_t xpud_soft_class(uint64_t x) {
  const uint64_t magnitude = x & ~SIGN;
  const bool negative = magnitude != x;
  if (IsNan(x)) return (x & 0x0008000000000000ull) != 0 ? 2 : 1;
  if (IsInfinite(x)) return negative ? 4 : 512;
  if (magnitude >= HIDDEN) return negative ? 8 : 256;
  if (magnitude != 0) return negative ? 16 : 128;
  return negative ? 32 : 64;
}
