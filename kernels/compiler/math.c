// The scalar functions that kernels call. They are compiled to LLVM bitcode at build time, linked into each
// kernel and inlined, so that loops over them vectorise. Rules: branch-free where speed matters; only
// builtins (a call of libm would not link); explicit fma, because this file is compiled without contraction;
// no errno, no exceptions.
//
// Polynomials are our own: interpolation at Chebyshev nodes, or Lawson-weighted rational least squares, in
// 40-digit arithmetic. Accuracy: f32 within about 2 ulp; f64 within about 4 ulp, except pow, erfc, randn
// (relative 1e-12).
#include <stdbool.h>
#include <stdint.h>

#define INF __builtin_inf()
#define NAN_ __builtin_nan("")
#define FMA __builtin_fma
#define FMAF __builtin_fmaf

static inline uint32_t Bits32(float x) { return __builtin_bit_cast(uint32_t, x); }
static inline float Float(uint32_t x) { return __builtin_bit_cast(float, x); }
static inline uint64_t Bits64(double x) { return __builtin_bit_cast(uint64_t, x); }
static inline double Double(uint64_t x) { return __builtin_bit_cast(double, x); }

// Returns the magnitude x >= 0 with the sign of y. copysign is not used, because x86 lowers one that is
// rounded to f16 to a library call.
static inline double WithSign(double x, double y) { return Bits64(y) >> 63 ? -x : x; }

// Returns x * 2^k, which may be 0, subnormal, normal or infinite; |k| <= 2100. Two factors, so that neither
// overflows.
static inline float Scale32(float x, int32_t k) {
  const int32_t half = k >> 1;
  return x * Float((uint32_t)(half + 127) << 23) * Float((uint32_t)(k - half + 127) << 23);
}
static inline double Scale64(double x, int64_t k) {
  const int64_t half = k >> 1;
  return x * Double((uint64_t)(half + 1023) << 52) * Double((uint64_t)(k - half + 1023) << 52);
}

// ---- exponentials: x = k ln 2 + r, |r| <= ln 2 / 2

static inline float ExpPoly32(float r) {
  float p = 0.001394110843f;
  p = FMAF(p, r, 0.008375126398f);
  p = FMAF(p, r, 0.0416663529f);
  p = FMAF(p, r, 0.1666641551f);
  p = FMAF(p, r, 0.5000000047f);
  p = FMAF(p, r, 1.000000038f);
  return FMAF(p, r, 1.0f);
}
// (e^r - 1 - r) / r^2
static inline double ExpTail64(double r) {
  double p = 2.51003758325612337e-8;
  p = FMA(p, r, 2.76200758799833666e-7);
  p = FMA(p, r, 2.75572684803100255e-6);
  p = FMA(p, r, 0.0000248015213223686933);
  p = FMA(p, r, 0.000198412698630405453);
  p = FMA(p, r, 0.00138888889171967191);
  p = FMA(p, r, 0.00833333333333006445);
  p = FMA(p, r, 0.0416666666666241619);
  p = FMA(p, r, 0.166666666666666675);
  return FMA(p, r, 0.500000000000000102);
}

#define LN2_HI 6.93147180369123816490e-01
#define LN2_LO 1.90821492927058770002e-10

float xpud_exp_f32(float x) {
  // Clamped outside the range, where the result is 0 or inf, so that k stays small.
  float c = x < -104.0f ? -104.0f : x;
  c = c > 89.0f ? 89.0f : c;
  const float k = __builtin_rintf(c * 1.44269504088896341f);
  float r = FMAF(k, -0.693145751953125f, c);
  r = FMAF(k, -1.42860682030941723e-6f, r);
  const float y = Scale32(ExpPoly32(r), (int32_t)(x != x ? 0 : k));
  return x != x ? x : y;
}

static inline double ReduceExp64(double x, double* k) {
  *k = __builtin_rint(x * 1.44269504088896340736);
  return FMA(*k, -LN2_LO, FMA(*k, -LN2_HI, x));
}

double xpud_exp_f64(double x) {
  double c = x < -750.0 ? -750.0 : x;
  c = c > 710.0 ? 710.0 : c;
  c = x != x ? 0.0 : c;
  double k;
  const double r = ReduceExp64(c, &k);
  const double y = Scale64(1.0 + FMA(r * r, ExpTail64(r), r), (int64_t)k);
  return x != x ? x : y;
}

double xpud_exp2_f64(double x) {
  double c = x < -1080.0 ? -1080.0 : x;
  c = c > 1025.0 ? 1025.0 : c;
  c = x != x ? 0.0 : c;
  const double k = __builtin_rint(c);
  const double r = (c - k) * 0.693147180559945309417;
  const double y = Scale64(1.0 + FMA(r * r, ExpTail64(r), r), (int64_t)k);
  return x != x ? x : y;
}

float xpud_exp2_f32(float x) {
  float c = x < -151.0f ? -151.0f : x;
  c = c > 129.0f ? 129.0f : c;
  c = x != x ? 0.0f : c;
  const float k = __builtin_rintf(c);
  const float y = Scale32(ExpPoly32((c - k) * 0.693147180559945f), (int32_t)k);
  return x != x ? x : y;
}

double xpud_expm1_f64(double x) {
  double c = x < -750.0 ? -750.0 : x;
  c = c > 710.0 ? 710.0 : c;
  c = x != x ? 0.0 : c;
  double k;
  const double r = ReduceExp64(c, &k);
  const double small = FMA(r * r, ExpTail64(r), r);  // e^r - 1
  // 2^k (small + 1) - 1; for large k the -1 is lost in rounding anyway.
  const double y = k > 60.0 ? Scale64(1.0 + small, (int64_t)k) : ({
    const double power =
        Double((uint64_t)((int64_t)(k < -1000.0 ? -1000.0 : (k > 60.0 ? 60.0 : k)) + 1023) << 52);
    FMA(power, small, power - 1.0);
  });
  return x != x || x == 0 ? x : y;
}

float xpud_expm1_f32(float x) { return (float)xpud_expm1_f64((double)x); }

// ---- logarithms: x = 2^e m, m in [sqrt(1/2), sqrt 2); log m = 2 atanh(s), s = (m - 1) / (m + 1)

static inline double LogSeries64(double z) {
  double p = 0.119111409649534259;
  p = FMA(p, z, 0.116848757770343377);
  p = FMA(p, z, 0.133357850543808894);
  p = FMA(p, z, 0.15384571714534154);
  p = FMA(p, z, 0.181818186375989998);
  p = FMA(p, z, 0.222222222195541038);
  p = FMA(p, z, 0.285714285714363875);
  p = FMA(p, z, 0.399999999999999912);
  return FMA(p, z, 0.666666666666666667);
}

// log m of a positive finite x, and its exponent.
static inline double LogReduced64(double x, double* exponent) {
  const bool tiny = x < 2.2250738585072014e-308;
  const uint64_t bits = Bits64(tiny ? x * 18014398509481984.0 : x);
  const uint64_t shifted = bits - 0x3fe6a09e667f3bcdull;  // sqrt(1/2)
  const int64_t e = (int64_t)shifted >> 52;
  const double m = Double((shifted & 0xfffffffffffffull) + 0x3fe6a09e667f3bcdull);
  *exponent = (double)(e - (tiny ? 54 : 0));
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double half = 0.5 * f * f;
  // f - (f^2/2 - s (f^2/2 + R)): the leading term is exact.
  return f - (half - s * (half + z * LogSeries64(z)));
}

static inline double LogSpecial64(double x, double y) {
  y = x == 0.0 ? -INF : y;
  y = x == INF ? INF : y;
  return x < 0.0 || x != x ? NAN_ : y;
}

double xpud_log_f64(double x) {
  double e;
  const double m = LogReduced64(x, &e);
  return LogSpecial64(x, FMA(e, LN2_HI, FMA(e, LN2_LO, m)));
}
double xpud_log2_f64(double x) {
  double e;
  const double m = LogReduced64(x, &e);
  return LogSpecial64(x, FMA(m, 1.44269504088896340736, e));
}
double xpud_log10_f64(double x) {
  double e;
  const double m = LogReduced64(x, &e);
  return LogSpecial64(x, FMA(e, 0.301029995663981195, m * 0.434294481903251828));
}
double xpud_log1p_f64(double x) {
  const double u = 1.0 + x;
  const double lost = (u >= 2.0 ? 1.0 - (u - x) : x - (u - 1.0)) / u;
  const double y = xpud_log_f64(u) + (u > 0.0 && u < INF ? lost : 0.0);
  return __builtin_fabs(x) < 1e-17 ? x : y;
}

static inline float LogReduced32(float x, float* exponent) {
  const bool tiny = x < 1.17549435e-38f;
  const uint32_t bits = Bits32(tiny ? x * 16777216.0f : x);
  const uint32_t shifted = bits - 0x3f3504f3u;
  const int32_t e = (int32_t)shifted >> 23;
  const float f = Float((shifted & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  *exponent = (float)(e - (tiny ? 24 : 0));
  const float s = f / (2.0f + f);
  const float z = s * s;
  float p = 0.233534276f;
  p = FMAF(p, z, 0.2854996859f);
  p = FMAF(p, z, 0.4000012943f);
  p = FMAF(p, z, 0.6666666655f);
  const float half = 0.5f * f * f;
  return f - (half - s * FMAF(z, p, half));
}
static inline float LogSpecial32(float x, float y) {
  y = x == 0.0f ? -(float)INF : y;
  y = x == (float)INF ? (float)INF : y;
  return x < 0.0f || x != x ? (float)NAN_ : y;
}
float xpud_log_f32(float x) {
  float e;
  const float m = LogReduced32(x, &e);
  return LogSpecial32(x, FMAF(e, 0.693145751953125f, FMAF(e, 1.42860682030941723e-6f, m)));
}
float xpud_log2_f32(float x) {
  float e;
  const float m = LogReduced32(x, &e);
  return LogSpecial32(x, FMAF(m, 1.44269504088896f, e));
}
float xpud_log10_f32(float x) {
  float e;
  const float m = LogReduced32(x, &e);
  return LogSpecial32(x, FMAF(e, 0.301029995663981f, m * 0.434294481903252f));
}
float xpud_log1p_f32(float x) { return (float)xpud_log1p_f64((double)x); }

// ---- powers

// Returns |x|^y for finite positive |x|: 2^(y log2 |x|), keeping the rounding error of the product.
static inline double PowPositive(double x, double y) {
  double e;
  const double m = LogReduced64(x, &e) * 1.44269504088896340736;
  const double l = e + m;
  const double low = m - (l - e);
  const double high = y * l;
  const double rest = FMA(y, l, -high) + y * low;
  const double bounded = high > 2000.0 ? 2000.0 : high < -2000.0 ? -2000.0 : high;
  const double k = __builtin_rint(bounded);
  const double extra = high == bounded ? rest : 0.0;
  const double r = (bounded - k + extra) * 0.693147180559945309417;
  const double c = k > 1100.0 ? 1100.0 : k < -1200.0 ? -1200.0 : k;
  return Scale64(1.0 + FMA(r * r, ExpTail64(r), r), (int64_t)(c != c ? 0.0 : c));
}

static inline double Pow(double x, double y) {
  const double ax = __builtin_fabs(x);
  const bool integral = __builtin_trunc(y) == y;
  const bool odd = integral && __builtin_fabs(y) < 9007199254740992.0 && __builtin_trunc(y * 0.5) != y * 0.5;
  double z = PowPositive(ax == 0.0 || ax == INF ? 1.0 : ax, __builtin_fabs(y) == INF ? 0.0 : y);
  z = ax == 0.0 ? (y < 0.0 ? INF : 0.0) : z;
  z = ax == INF ? (y < 0.0 ? 0.0 : INF) : z;
  z = __builtin_fabs(y) == INF ? (ax == 1.0 ? 1.0 : (ax > 1.0) == (y > 0.0) ? INF : 0.0) : z;
  z = odd ? WithSign(z, x) : z;
  z = x < 0.0 && ax != INF && !integral ? NAN_ : z;
  z = x != x || y != y ? NAN_ : z;
  return x == 1.0 || y == 0.0 ? 1.0 : z;
}
double xpud_pow_f64(double x, double y) { return Pow(x, y); }
float xpud_pow_f32(float x, float y) { return (float)Pow((double)x, (double)y); }

// Wraps. A negative power gives the result of integer division of 1.
int64_t xpud_pow_i64(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
  uint64_t result = 1, base = (uint64_t)x;
  for (uint64_t n = (uint64_t)y; n != 0; n >>= 1) {
    result *= n & 1 ? base : 1;
    base *= base;
  }
  return (int64_t)result;
}

double xpud_hypot_f64(double x, double y) {
  const double a = __builtin_fabs(x), b = __builtin_fabs(y);
  const double big = a > b ? a : b, small = a > b ? b : a;
  // Scaled by a power of two, so that squares neither overflow nor vanish.
  const double scale = big > 1e150 ? 1.4916681462400413e-154 : big < 1e-150 ? 6.703903964971299e+153 : 1.0;
  const double unscale = big > 1e150 ? 6.703903964971299e+153 : big < 1e-150 ? 1.4916681462400413e-154 : 1.0;
  const double u = big * scale, v = small * scale;
  const double z = __builtin_sqrt(FMA(u, u, v * v)) * unscale;
  return a == INF || b == INF ? INF : x != x || y != y ? NAN_ : z;
}
float xpud_hypot_f32(float x, float y) {
  const double u = x, v = y;
  const float z = (float)__builtin_sqrt(FMA(u, u, v * v));
  return __builtin_fabsf(x) == (float)INF || __builtin_fabsf(y) == (float)INF ? (float)INF : z;
}

// ---- sigmoid and hyperbolic functions

float xpud_sigmoid_f32(float x) { return 1.0f / (1.0f + xpud_exp_f32(-x)); }
double xpud_sigmoid_f64(double x) { return 1.0 / (1.0 + xpud_exp_f64(-x)); }

float xpud_tanh_f32(float x) {
  float c = x < -9.02f ? -9.02f : x;
  c = c > 9.02f ? 9.02f : c;
  const float z = c * c;
  float p = -1.218745757e-11f;
  p = FMAF(p, z, 3.056367035e-8f);
  p = FMAF(p, z, 2.799866458e-5f);
  p = FMAF(p, z, 0.003867894575f);
  p = FMAF(p, z, 0.1367957012f);
  p = FMAF(p, z, 0.9999999987f);
  float q = 1.28674938e-6f;
  q = FMAF(q, z, 0.0003937865432f);
  q = FMAF(q, z, 0.02724425588f);
  q = FMAF(q, z, 0.4701290218f);
  q = FMAF(q, z, 1.0f);
  const float y = c * (p / q);
  const float bounded = x > 9.01f || y > 1.0f ? 1.0f : x < -9.01f || y < -1.0f ? -1.0f : y;
  return x != x ? x : bounded;
}
double xpud_tanh_f64(double x) {
  const double a = __builtin_fabs(x);
  const double t = xpud_expm1_f64(2.0 * (a > 22.0 ? 22.0 : a));
  const double y = t / (t + 2.0);
  return x != x ? x : WithSign(y, x);
}
double xpud_sinh_f64(double x) {
  const double a = __builtin_fabs(x);
  const double t = xpud_expm1_f64(a > 700.0 ? 700.0 : a);
  const double small = 0.5 * (t + t / (t + 1.0));
  const double half = xpud_exp_f64(0.5 * a);
  return x != x ? x : WithSign(a > 700.0 ? 0.5 * half * half : small, x);
}
double xpud_cosh_f64(double x) {
  const double a = __builtin_fabs(x);
  const double t = xpud_exp_f64(a > 700.0 ? 700.0 : a);
  const double half = xpud_exp_f64(0.5 * a);
  return x != x ? x : a > 700.0 ? 0.5 * half * half : 0.5 * (t + 1.0 / t);
}
float xpud_sinh_f32(float x) { return (float)xpud_sinh_f64((double)x); }
float xpud_cosh_f32(float x) { return (float)xpud_cosh_f64((double)x); }
double xpud_asinh_f64(double x) {
  const double a = __builtin_fabs(x);
  const double z = a * a;
  const double y = a > 1e150 ? xpud_log_f64(a) + 0.693147180559945309417
                             : xpud_log1p_f64(a + z / (1.0 + __builtin_sqrt(z + 1.0)));
  return x != x ? x : WithSign(y, x);
}
double xpud_acosh_f64(double x) {
  const double t = x - 1.0;
  const double y = x > 1e150 ? xpud_log_f64(x) + 0.693147180559945309417
                             : xpud_log1p_f64(t + __builtin_sqrt(2.0 * t + t * t));
  return x < 1.0 ? NAN_ : y;
}
double xpud_atanh_f64(double x) {
  const double a = __builtin_fabs(x);
  const double y = 0.5 * xpud_log1p_f64(2.0 * a / (1.0 - a));
  return a > 1.0 ? NAN_ : a == 1.0 ? WithSign(INF, x) : WithSign(y, x);
}
float xpud_asinh_f32(float x) { return (float)xpud_asinh_f64((double)x); }
float xpud_acosh_f32(float x) { return (float)xpud_acosh_f64((double)x); }
float xpud_atanh_f32(float x) { return (float)xpud_atanh_f64((double)x); }

// ---- trigonometry: x = q pi/2 + r, |r| <= pi/4

static inline double SinPoly(double r) {
  const double z = r * r;
  double p = -7.58669711770691798e-13;
  p = FMA(p, z, 1.60585316189861468e-10);
  p = FMA(p, z, -2.50521062324475773e-8);
  p = FMA(p, z, 2.75573192193391665e-6);
  p = FMA(p, z, -0.000198412698412650649);
  p = FMA(p, z, 0.00833333333333333149);
  p = FMA(p, z, -0.166666666666666667);
  return FMA(p * z, r, r);
}
static inline double CosPoly(double r) {
  const double z = r * r;
  double p = 4.74587190204329154e-14;
  p = FMA(p, z, -1.14704608876099591e-11);
  p = FMA(p, z, 2.08767557910804238e-9);
  p = FMA(p, z, -2.75573192214028244e-7);
  p = FMA(p, z, 0.0000248015873015846464);
  p = FMA(p, z, -0.00138888888888888879);
  p = FMA(p, z, 0.0416666666666666667);
  return FMA(z * z, p, FMA(z, -0.5, 1.0));
}

// 2/pi in 64-bit words, most significant first: 1280 bits, enough for the largest exponent.
static const uint64_t kTwoOverPi[20] = {
    0xa2f9836e4e441529ull, 0xfc2757d1f534ddc0ull, 0xdb6295993c439041ull, 0xfe5163abdebbc561ull,
    0xb7246e3a424dd2e0ull, 0x06492eea09d1921cull, 0xfe1deb1cb129a73eull, 0xe88235f52ebb4484ull,
    0xe99c7026b45f7e41ull, 0x3991d639835339f4ull, 0x9c845f8bbdf9283bull, 0x1ff897ffde05980full,
    0xef2f118b5a0a6d1full, 0x6d367ecf27cb09b7ull, 0x4f463f669e5fea2dull, 0x7527bac7ebe5f17bull,
    0x3d0739f78a5292eaull, 0x6bfb5fb11f8d5d08ull, 0x56033046fc7b6babull, 0xf0cfbc209af4361dull,
};

// For x >= 2^20 or so: the relevant bits of x * 2/pi, from a 192-bit window of 2/pi (Payne and Hanek, 1983).
static inline double ReduceLarge(double x, int64_t* quadrant) {
  const uint64_t bits = Bits64(x);
  const int64_t exponent = (int64_t)(bits >> 52 & 0x7ff) - 1075;  // x = mantissa * 2^exponent, exponent > -53
  const uint64_t mantissa = (bits & 0xfffffffffffffull) | 0x10000000000000ull;
  // Multiples of 4 in the product can be dropped, so this starts at the first word that contributes below
  // 2^2.
  const int64_t skip = exponent < 64 ? 0 : (exponent - 64 + 61) / 64 > 0 ? (exponent - 2) / 64 : 0;
  const int64_t shift =
      exponent - 64 * skip;  // the window's first bit has weight 2^(shift - 1) in the product
  const uint64_t w0 = kTwoOverPi[skip], w1 = kTwoOverPi[skip + 1], w2 = kTwoOverPi[skip + 2],
                 w3 = kTwoOverPi[skip + 3];
  // mantissa * window, 256 bits, then shifted so that the binary point is at 192.
  // In 32-bit limbs, most significant first: SPIR-V has no 128-bit integers.
  const uint32_t w[8] = {(uint32_t)(w0 >> 32), (uint32_t)w0, (uint32_t)(w1 >> 32), (uint32_t)w1,
                         (uint32_t)(w2 >> 32), (uint32_t)w2, (uint32_t)(w3 >> 32), (uint32_t)w3};
  uint32_t r[10];
  uint64_t carry = 0;
#pragma clang loop unroll(full)
  for (int k = 7; k >= 0; --k) {
    const uint64_t t = (mantissa & 0xffffffffu) * w[k] + carry;
    r[k + 2] = (uint32_t)t;
    carry = t >> 32;
  }
  r[1] = (uint32_t)carry;
  carry = 0;
#pragma clang loop unroll(full)
  for (int k = 7; k >= 0; --k) {
    const uint64_t t = (mantissa >> 32) * w[k] + r[k + 1] + carry;
    r[k + 1] = (uint32_t)t;
    carry = t >> 32;
  }
  r[0] = (uint32_t)carry;
#define LIMBS(k) ((uint64_t)r[k] << 32 | r[(k) + 1])
  const uint64_t top = LIMBS(0), a0 = LIMBS(2), a1 = LIMBS(4), a2 = LIMBS(6), a3 = LIMBS(8);
  // product * 2^(shift - 256 + ...): value = (top:a0:a1:a2:a3) * 2^(shift - 256). Take the integer part and
  // the fraction.
  uint64_t i, f0, f1;
  if (shift <= 0) {
    const int64_t down = -shift;  // < 64
    i = down == 0 ? top : top >> down;
    f0 = down == 0 ? a0 : a0 >> down | top << (64 - down);
    f1 = down == 0 ? a1 : a1 >> down | a0 << (64 - down);
  } else if (shift < 64) {
    i = top << shift | a0 >> (64 - shift);
    f0 = a0 << shift | a1 >> (64 - shift);
    f1 = a1 << shift | a2 >> (64 - shift);
  } else {
    const int64_t up = shift - 64;  // < 64
    i = up == 0 ? a0 : a0 << up | a1 >> (64 - up);
    f0 = up == 0 ? a1 : a1 << up | a2 >> (64 - up);
    f1 = up == 0 ? a2 : a2 << up | a3 >> (64 - up);
  }
  // Round to nearest: a fraction of a half or more belongs to the next quadrant.
  const bool above = f0 >> 63;
  *quadrant = (int64_t)((i + above) & 3);
  const double fraction = (double)(int64_t)f0 * 0x1p-64 + (double)(f1 >> 11) * 0x1p-117;
  return fraction * 1.57079632679489661923;
}

static inline double ReduceTrig(double x, int64_t* quadrant) {
  const double a = __builtin_fabs(x);
  double r;
  int64_t q;
  if (a < 1e6) {
    const double k = __builtin_rint(a * 0.636619772367581343076);
    q = (int64_t)k & 3;
    // pi/2 in three parts: the first two have 33 bits, so that k times each is exact.
    r = FMA(k, -1.57079632673412561417e+00, a);
    r = FMA(k, -6.07710050630396597660e-11, r);
    r = FMA(k, -2.02226624879595063154e-21, r);
  } else if (a < INF) {
    r = ReduceLarge(a, &q);
  } else {
    r = NAN_;
    q = 0;
  }
  *quadrant = x < 0.0 ? (4 - q) & 3 : q;
  return x < 0.0 ? -r : r;
}

double xpud_sin_f64(double x) {
  int64_t q;
  const double r = ReduceTrig(x, &q);
  const double y = q & 1 ? CosPoly(r) : SinPoly(r);
  return x == 0.0 ? x : q & 2 ? -y : y;  // keeps -0
}
double xpud_cos_f64(double x) {
  int64_t q;
  const double r = ReduceTrig(x, &q);
  const double y = q & 1 ? SinPoly(r) : CosPoly(r);
  return (q + 1) & 2 ? -y : y;
}
double xpud_tan_f64(double x) {
  int64_t q;
  const double r = ReduceTrig(x, &q);
  const double s = SinPoly(r), c = CosPoly(r);
  return x == 0.0 ? x : q & 1 ? -c / s : s / c;
}

// f32: the reduction is done in f64, branch-free, so that loops vectorise. Beyond 2^27 a window of 2/pi is
// multiplied by the 24-bit mantissa in integers.
static const uint32_t kTwoOverPi32[8] = {0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u,
                                         0xdb629599u, 0x3c439041u, 0xfe5163abu, 0xdebbc561u};

static inline double ReduceTrig32(float x, int32_t* quadrant) {
  const float a = __builtin_fabsf(x);
  const double d = a;
  const double k = __builtin_rint(a < 134217728.0f ? d * 0.636619772367581343076 : 0.0);
  const double near = FMA(k, -6.07710050650619224932e-11, FMA(k, -1.57079632673412561417e+00, d));
  const uint32_t bits = Bits32(a);
  const int32_t e = (int32_t)(bits >> 23) - 150;  // a = mantissa * 2^e; here 4 <= e <= 105
  // Bits of 2/pi above 2^(2 - e) give multiples of 4: the window starts below them.
  const int32_t bounded = e < 2 ? 0 : e > 104 ? 102 : e - 2;
  const int32_t word = bounded >> 5, shift = bounded & 31;
  const uint64_t mantissa = (bits & 0x7fffffu) | 0x800000u;
  const uint64_t w0 = (uint64_t)kTwoOverPi32[word] << 32 | kTwoOverPi32[word + 1];
  const uint64_t w1 = (uint64_t)kTwoOverPi32[word + 1] << 32 | kTwoOverPi32[word + 2];
  const uint64_t w2 = (uint64_t)kTwoOverPi32[word + 2] << 32 | kTwoOverPi32[word + 3];
  // 96 bits of 2/pi from bit e - 2: high, middle, low.
  const uint64_t high = (w0 << shift) >> 32, middle = (w1 << shift) >> 32, low = (w2 << shift) >> 32;
  // mantissa * window in units of 2^-62, modulo 4.
  const uint64_t p = (mantissa * high << 32) + mantissa * middle + (mantissa * low >> 32);
  const uint64_t rounded = p + (1ull << 61);
  const int32_t far_q = (int32_t)(rounded >> 62);
  const double far = (double)(int64_t)(p - ((uint64_t)far_q << 62)) * (1.57079632679489661923 * 0x1p-62);
  const bool large = a >= 134217728.0f;
  const int32_t q = large ? far_q : (int32_t)(int64_t)k & 3;
  const double r = a == (float)INF || x != x ? NAN_ : large ? far : near;
  *quadrant = x < 0.0f ? (4 - q) & 3 : q;
  return x < 0.0f ? -r : r;
}

static inline float SinPoly32(float r) {
  const float z = r * r;
  float p = 2.72499258e-6f;
  p = FMAF(p, z, -0.0001984008674f);
  p = FMAF(p, z, 0.008333331875f);
  p = FMAF(p, z, -0.1666666666f);
  return FMAF(p * z, r, r);
}
static inline float CosPoly32(float r) {
  const float z = r * r;
  float p = -2.73009592e-7f;
  p = FMAF(p, z, 2.480060038e-5f);
  p = FMAF(p, z, -0.001388888767f);
  p = FMAF(p, z, 0.04166666666f);
  return FMAF(z * z, p, FMAF(z, -0.5f, 1.0f));
}

float xpud_sin_f32(float x) {
  int32_t q;
  const float r = (float)ReduceTrig32(x, &q);
  const float y = q & 1 ? CosPoly32(r) : SinPoly32(r);
  return x == 0.0f ? x : q & 2 ? -y : y;
}
float xpud_cos_f32(float x) {
  int32_t q;
  const float r = (float)ReduceTrig32(x, &q);
  const float y = q & 1 ? SinPoly32(r) : CosPoly32(r);
  return (q + 1) & 2 ? -y : y;
}
float xpud_tan_f32(float x) {
  int32_t q;
  const double r = ReduceTrig32(x, &q);
  const double s = SinPoly(r), c = CosPoly(r);
  return x == 0.0f ? x : (float)(q & 1 ? -c / s : s / c);
}

// atan of any finite x, in three ranges about 0, tan(pi/4) and infinity.
static inline double AtanPositive(double a) {
  const bool large = a > 2.41421356237309504880, middle = a > 0.41421356237309504880 && !large;
  const double t = large ? -1.0 / a : middle ? (a - 1.0) / (a + 1.0) : a;
  const double base = large ? 1.57079632679489661923 : middle ? 0.785398163397448309616 : 0.0;
  const double low = large ? 6.12323399573676588614e-17 : middle ? 3.06161699786838294307e-17 : 0.0;
  const double z = t * t;
  double p = 0.0161482285467718694;
  p = FMA(p, z, -0.0344458444235773848);
  p = FMA(p, z, 0.0454671950955516654);
  p = FMA(p, z, -0.0522938047378184059);
  p = FMA(p, z, 0.0587878246944398118);
  p = FMA(p, z, -0.0666641207772527434);
  p = FMA(p, z, 0.0769229565832787351);
  p = FMA(p, z, -0.0909090872858745904);
  p = FMA(p, z, 0.111111111046522548);
  p = FMA(p, z, -0.142857142856546389);
  p = FMA(p, z, 0.199999999999997838);
  p = FMA(p, z, -0.333333333333333332);
  return base + (FMA(p * z, t, t) + low);
}
double xpud_atan_f64(double x) { return x != x ? x : WithSign(AtanPositive(__builtin_fabs(x)), x); }
double xpud_atan2_f64(double y, double x) {
  const double ax = __builtin_fabs(x), ay = __builtin_fabs(y);
  const bool swap = ay > ax;
  const double low = swap ? ax : ay, high = swap ? ay : ax;
  double t = ax == INF && ay == INF ? 1.0 : low / (high == 0.0 ? 1.0 : high);
  double r = AtanPositive(t);
  r = swap ? 1.57079632679489661923 - r : r;
  r = Bits64(x) >> 63 ? 3.14159265358979323846 - r : r;
  return x != x || y != y ? NAN_ : WithSign(r, y);
}
static inline double AsinOf(double x) { return xpud_atan2_f64(x, __builtin_sqrt((1.0 - x) * (1.0 + x))); }
double xpud_asin_f64(double x) { return AsinOf(x); }
double xpud_acos_f64(double x) { return xpud_atan2_f64(__builtin_sqrt((1.0 - x) * (1.0 + x)), x); }
float xpud_atan_f32(float x) { return (float)xpud_atan_f64((double)x); }
float xpud_atan2_f32(float y, float x) { return (float)xpud_atan2_f64((double)y, (double)x); }
float xpud_asin_f32(float x) { return (float)xpud_asin_f64((double)x); }
float xpud_acos_f32(float x) { return (float)xpud_acos_f64((double)x); }

// ---- error function

// erf(x) / x as a rational function of x^2 on |x| <= 3.93, where erf reaches 1 in f32.
float xpud_erf_f32(float x) {
  float c = x < -3.93f ? -3.93f : x;
  c = c > 3.93f ? 3.93f : c;
  const float z = c * c;
  float p = -1.289358948e-8f;
  p = FMAF(p, z, 4.626614821e-6f);
  p = FMAF(p, z, 0.0003774186179f);
  p = FMAF(p, z, 0.003841488293f);
  p = FMAF(p, z, 0.0542618505f);
  p = FMAF(p, z, 0.1851596753f);
  p = FMAF(p, z, 1.128379169f);
  float q = 6.256243177e-5f;
  q = FMAF(q, z, 0.001302987235f);
  q = FMAF(q, z, 0.01543812315f);
  q = FMAF(q, z, 0.1138967905f);
  q = FMAF(q, z, 0.4974268974f);
  q = FMAF(q, z, 1.0f);
  const float y = c * (p / q);
  // Exactly 1 beyond that, so that 1 - erf is 0.
  const float bounded = x > 3.92f || y > 1.0f ? 1.0f : x < -3.92f || y < -1.0f ? -1.0f : y;
  return x != x ? x : bounded;
}

static inline double ErfSmall(double x) {
  const double z = x * x;
  double p = -4.23094582429533782e-12;
  p = FMA(p, z, 8.70904512905310669e-11);
  p = FMA(p, z, -1.21645600572834501e-9);
  p = FMA(p, z, 1.4792401209404813e-8);
  p = FMA(p, z, -1.63646421581676153e-7);
  p = FMA(p, z, 1.64620454414684189e-6);
  p = FMA(p, z, -0.0000149256475675193321);
  p = FMA(p, z, 0.000120553329028887354);
  p = FMA(p, z, -0.00085483270219348296);
  p = FMA(p, z, 0.00522397762542329831);
  p = FMA(p, z, -0.0268661706451298408);
  p = FMA(p, z, 0.112837916709551202);
  p = FMA(p, z, -0.376126389031837524);
  p = FMA(p, z, 1.12837916709551257);
  return p * x;
}
// e^(a^2) erfc(a) of 1 <= a <= 28: a polynomial in u = (a - 3) / (a + 3), over 1 + a.
static inline double ErfcScaled(double a) {
  const double c = a > 28.0 ? 28.0 : a;
  const double u = (c - 3.0) / (c + 3.0);
  double p = 9.08607206420371538e-8;
  p = FMA(p, u, -3.54623189965263728e-7);
  p = FMA(p, u, -3.85995110825584549e-8);
  p = FMA(p, u, 1.68530576219980453e-6);
  p = FMA(p, u, 2.77787780274577753e-7);
  p = FMA(p, u, -9.03618149159656531e-6);
  p = FMA(p, u, -1.50912216558086492e-6);
  p = FMA(p, u, 0.0000561303145287614543);
  p = FMA(p, u, -0.0000205542731715807699);
  p = FMA(p, u, -0.00036728991058707978);
  p = FMA(p, u, 0.000645814658093796248);
  p = FMA(p, u, 0.00161856923096131582);
  p = FMA(p, u, -0.00975068933011366201);
  p = FMA(p, u, 0.0219577640086974324);
  p = FMA(p, u, -0.0238039131072298879);
  p = FMA(p, u, -0.0102353888989389909);
  p = FMA(p, u, 0.0990207536794193797);
  p = FMA(p, u, -0.230927333083809584);
  p = FMA(p, u, 0.71600460472555985);
  return p / (1.0 + c);
}
static inline double ErfcLarge(double a) {
  const double c = a > 28.0 ? 28.0 : a;
  const double square = c * c, low = FMA(c, c, -square);
  return xpud_exp_f64(-square) * (1.0 - low) * ErfcScaled(c);
}
double xpud_erf_f64(double x) {
  const double a = __builtin_fabs(x);
  const double y = a < 1.0 ? ErfSmall(a) : 1.0 - ErfcLarge(a);
  return x != x ? x : WithSign(y, x);
}
double xpud_erfc_f64(double x) {
  const double a = __builtin_fabs(x);
  const double y = a < 1.0 ? 1.0 - ErfSmall(a) : ErfcLarge(a);
  const double tail = a < 1.0 ? 1.0 - ErfSmall(x) : x < 0.0 ? 2.0 - y : y;
  return x != x ? x : tail;
}
float xpud_erfc_f32(float x) { return (float)xpud_erfc_f64((double)x); }

// Three of Halley's steps on erf, from Winitzki's approximation, reach f64.
double xpud_erfinv_f64(double y) {
  const double a = __builtin_fabs(y);
  // Winitzki (2008): relative error below 4e-3.
  const double l = xpud_log1p_f64(-y * y);
  const double t = 4.3307467508 + 0.5 * l;
  double x = __builtin_sqrt(__builtin_sqrt(t * t - l * 6.8027210884) - t);
  for (int step = 0; step < 3; ++step) {
    const double miss = a < 0.5 ? xpud_erf_f64(x) - a : (1.0 - a) - xpud_erfc_f64(x);
    const double ratio = miss * 0.886226925452758014 * xpud_exp_f64(x * x);
    x -= ratio / (1.0 + x * ratio);  // Halley's step
  }
  x = a == 0.0 ? 0.0 : a == 1.0 ? INF : x;
  return a > 1.0 || y != y ? NAN_ : WithSign(x, y);
}
float xpud_erfinv_f32(float x) { return (float)xpud_erfinv_f64((double)x); }

// Stirling's series at z >= 8, reached by x (x + 1) .. (x + 7); reflection below 0.
double xpud_lgamma_f64(double x) {
  const double a = x < 0.5 ? 1.0 - x : x;
  double product = 1.0, z = a;
  for (int step = 0; step < 8; ++step) {
    product *= z < 8.0 ? z : 1.0;
    z += z < 8.0 ? 1.0 : 0.0;
  }
  const double w = 1.0 / z, v = w * w;
  double series = FMA(v, -691.0 / 360360.0, 1.0 / 1188.0);
  series = FMA(v, series, -1.0 / 1680.0);
  series = FMA(v, series, 1.0 / 1260.0);
  series = FMA(v, series, -1.0 / 360.0);
  series = FMA(v, series, 1.0 / 12.0);
  const double l =
      (z - 0.5) * xpud_log_f64(z) - z + 0.918938533204672741780 + w * series - xpud_log_f64(product);
  // log |Gamma(x)| = log(pi / |sin(pi x)|) - log Gamma(1 - x); sin(pi x) from the distance to the nearest
  // integer.
  const double r = x - __builtin_rint(x);
  const double sine = __builtin_fabs(r) > 0.25 ? CosPoly((0.5 - __builtin_fabs(r)) * 3.14159265358979323846)
                                               : SinPoly(__builtin_fabs(r) * 3.14159265358979323846);
  const double reflected = 1.14472988584940017414 - xpud_log_f64(sine) - l;
  const double y = x < 0.5 ? reflected : a == 1.0 || a == 2.0 ? 0.0 : l;
  const bool pole = x <= 0.0 && r == 0.0;
  return x != x ? x : pole || __builtin_fabs(x) == INF ? INF : y;
}
float xpud_lgamma_f32(float x) { return (float)xpud_lgamma_f64((double)x); }

// ---- remainders: exact, as long division in chunks of bits

static inline uint64_t MantissaOf(double x, int64_t* exponent) {
  const uint64_t bits = Bits64(x), fraction = bits & 0xfffffffffffffull;
  const int64_t e = (int64_t)(bits >> 52 & 0x7ff);
  *exponent = e == 0 ? 1 : e;
  return e == 0 ? fraction : fraction | 0x10000000000000ull;
}
double xpud_fmod_f64(double x, double y) {
  const double a = __builtin_fabs(x), b = __builtin_fabs(y);
  if (!(a < INF) || y != y || b == 0.0) return NAN_;
  if (a < b) return x;
  if (a < 1e15 * b && b > 1e-290) {
    // One step: the quotient is below 2^50, and q b is subtracted exactly; it may be one too large.
    const double q = __builtin_trunc(a / b);
    double r = FMA(-q, b, a);
    r = r < 0.0 ? r + b : r;
    r = r >= b ? r - b : r;
    return WithSign(r, x);
  }
  int64_t ex, ey;
  uint64_t m = MantissaOf(a, &ex);
  const uint64_t n = MantissaOf(b, &ey);
  m %= n;
  for (int64_t left = ex - ey; left > 0;) {
    const int64_t step = left < 11 ? left : 11;
    m = (m << step) % n;
    left -= step;
  }
  return WithSign((double)m * Scale64(1.0, ey - 1075 < -1000 ? -1000 : ey - 1075) *
                      Scale64(1.0, ey - 1075 < -1000 ? ey - 1075 + 1000 : 0),
                  x);
}
float xpud_fmod_f32(float x, float y) { return (float)xpud_fmod_f64((double)x, (double)y); }
double xpud_remainder_f64(double x, double y) {
  const double r = xpud_fmod_f64(x, y);
  return r != 0.0 && (r < 0.0) != (y < 0.0) ? r + y : r;
}
float xpud_remainder_f32(float x, float y) {
  const float r = xpud_fmod_f32(x, y);
  return r != 0.0f && (r < 0.0f) != (y < 0.0f) ? r + y : r;
}
double xpud_floordiv_f64(double x, double y) {
  if (y == 0.0) return x / y;
  const double r = xpud_fmod_f64(x, y);
  double q = (x - r) / y;
  q = r != 0.0 && (r < 0.0) != (y < 0.0) ? q - 1.0 : q;
  const double down = __builtin_floor(q);
  return q == 0.0 ? WithSign(0.0, x / y) : q - down > 0.5 ? down + 1.0 : down;
}
float xpud_floordiv_f32(float x, float y) { return (float)xpud_floordiv_f64((double)x, (double)y); }
// Nothing traps: a remainder by 0 is 0.
int64_t xpud_fmod_i64(int64_t x, int64_t y) { return y == 0 || y == -1 ? 0 : x % y; }
int64_t xpud_remainder_i64(int64_t x, int64_t y) {
  const int64_t r = xpud_fmod_i64(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

// ---- random numbers: Philox4x32-10 (Salmon et al., 2011), counter {block, 0, 0}

typedef struct {
  uint32_t w[4];
} Block;

static inline Block PhiloxAt(uint64_t seed, uint64_t block, uint32_t third) {
  uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = third, c3 = 0;
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
#pragma clang loop unroll(full)
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = (uint64_t)c0 * 0xD2511F53u, p1 = (uint64_t)c2 * 0xCD9E8D57u;
    const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return (Block){{c0, c1, c2, c3}};
}
static inline Block Philox(uint64_t seed, uint64_t block) { return PhiloxAt(seed, block, 0); }
static inline uint32_t Word(int64_t seed, int64_t offset, int64_t i) {
  const Block b = Philox((uint64_t)seed, (uint64_t)(offset + (i >> 2)));
  const uint32_t low = i & 1 ? b.w[1] : b.w[0], high = i & 1 ? b.w[3] : b.w[2];
  return i & 2 ? high : low;
}
float xpud_rand_f32(int64_t seed, int64_t offset, int64_t i) {
  return (float)(int32_t)(Word(seed, offset, i) >> 8) * 0x1p-24f;
}
int64_t xpud_randint(int64_t seed, int64_t offset, int64_t i) {
  const Block b = Philox((uint64_t)seed, (uint64_t)(offset + (i >> 1)));
  const uint32_t low = i & 1 ? b.w[2] : b.w[0], high = i & 1 ? b.w[3] : b.w[1];
  return (int64_t)((uint64_t)high << 32 | low);
}
double xpud_rand_f64(int64_t seed, int64_t offset, int64_t i) {
  return (double)(int64_t)((uint64_t)xpud_randint(seed, offset, i) >> 11) * 0x1p-53;
}
// Box and Muller (1958): u in (0, 1], so that the logarithm is finite.
double xpud_randn_f64(int64_t seed, int64_t offset, int64_t i) {
  const Block b = Philox((uint64_t)seed, (uint64_t)(offset + (i >> 2)));
  const double u = ((double)(i & 2 ? b.w[2] : b.w[0]) + 1.0) * 0x1p-32;
  const double turn = (double)(i & 2 ? b.w[3] : b.w[1]) * 0x1p-32;
  const double radius = __builtin_sqrt(-2.0 * xpud_log_f64(u));
  // cos and sin of 2 pi turn: reduced to a quarter turn exactly.
  const double quarters = __builtin_rint(turn * 4.0);
  const double r = (turn - quarters * 0.25) * 6.28318530717958647693;
  const int32_t q = ((int32_t)quarters + (i & 1 ? 3 : 0)) & 3;  // sin t = cos(t - quarter)
  const double y = q & 1 ? SinPoly(r) : CosPoly(r);
  return radius * ((q + 1) & 2 ? -y : y);
}
float xpud_randn_f32(int64_t seed, int64_t offset, int64_t i) {
  return (float)xpud_randn_f64(seed, offset, i);
}

#include "special_functions.h"
