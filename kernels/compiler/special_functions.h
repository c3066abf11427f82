// Special functions, included by math.c: gamma's relatives, Bessel functions, the scaled error function and
// what is made of it, fractions and exponents, divisors, polynomials, distributions. Computed in f64; f32
// rounds the result.
//
// Coefficients are those of Chebyshev polynomials, computed with 40 digits. Accuracy: about 1e-14, relative
// for functions without zeros, else absolute. Loops end after a fixed number of steps, whatever the values
// are.

#define PI 3.14159265358979323846
#define ROOT_PI 1.77245385090551602730
#define ROOT_2 1.41421356237309504880

#define FROM_F64(name) \
  float xpud_##name##_f32(float x) { return (float)xpud_##name##_f64((double)x); }
#define FROM_F64_2(name) \
  float xpud_##name##_f32(float x, float y) { return (float)xpud_##name##_f64((double)x, (double)y); }

// Clenshaw's sum of c[k] T_k(t), |t| <= 1.
static inline double Chebyshev(const double* c, int count, double t) {
  double next = 0.0, after = 0.0;
#pragma clang loop unroll(full)
  for (int k = count - 1; k > 0; --k) {
    const double sum = FMA(2.0 * t, next, c[k] - after);
    after = next;
    next = sum;
  }
  return FMA(t, next, c[0] - after);
}
#define CHEBYSHEV(table, t) Chebyshev(table, (int)(sizeof(table) / sizeof(table[0])), t)

// ---- digamma, and zeta of Hurwitz

// The asymptotic series at z >= 8, reached by the recurrence; reflection below 1/2.
double xpud_digamma_f64(double x) {
  const double a = x < 0.5 ? 1.0 - x : x;
  double sum = 0.0, z = a;
#pragma clang loop unroll(full)
  for (int step = 0; step < 8; ++step) {
    sum += z < 8.0 ? 1.0 / z : 0.0;
    z += z < 8.0 ? 1.0 : 0.0;
  }
  const double v = 1.0 / (z * z);
  double series = FMA(v, 1.0 / 12.0, -691.0 / 32760.0);
  series = FMA(v, series, 1.0 / 132.0);
  series = FMA(v, series, -1.0 / 240.0);
  series = FMA(v, series, 1.0 / 252.0);
  series = FMA(v, series, -1.0 / 120.0);
  series = FMA(v, series, 1.0 / 12.0);
  const double direct = xpud_log_f64(z) - 0.5 / z - v * series - sum;
  // psi(x) = psi(1 - x) - pi / tan(pi x); tan from the distance to the nearest integer
  const double r = x - __builtin_rint(x);
  const double near = __builtin_fabs(r) > 0.25 ? 0.5 - __builtin_fabs(r) : __builtin_fabs(r);
  const double tangent = SinPoly(near * PI) / CosPoly(near * PI);
  const double cotangent = WithSign(__builtin_fabs(r) > 0.25 ? tangent : 1.0 / tangent, r);
  const double y = x < 0.5 ? direct - PI * cotangent : direct;
  if (x == 0.0) return WithSign(INF, -x);
  return x != x || (x < 0.0 && r == 0.0) || x == -INF ? NAN_ : x == INF ? INF : y;
}
FROM_F64(digamma)

// The sum of (q + k)^-s for q > 0, s > 1: ten terms, and the rest by Euler and Maclaurin.
static inline double ZetaPositive(double s, double q) {
  static const double kBernoulli[8] = {
      // of index 2 j, over (2 j)!
      1.0 / 12.0,       -1.0 / 720.0,          1.0 / 30240.0,       -1.0 / 1209600.0,
      1.0 / 47900160.0, -691.0 / 1307674368e3, 1.0 / 74724249600.0, -3617.0 / 10670622842880e3};
  double sum = 0.0;
  for (int k = 0; k < 10; ++k) sum += PowPositive(q + k, -s);
  const double w = q + 10.0, power = PowPositive(w, -s);
  sum += PowPositive(w, 1.0 - s) / (s - 1.0);
  if (power == 0.0) return sum;
  sum += 0.5 * power;
  double factor = s, term = power / w;
  for (int j = 0; j < 8; ++j) {
    sum += kBernoulli[j] * factor * term;
    factor *= (s + 2 * j + 1.0) * (s + 2 * j + 2.0);
    term /= w * w;
  }
  return sum;
}
// For q < 0 and whole s, the terms below 0 are a difference of two such sums.
double xpud_zeta_f64(double s, double q) {
  if (s != s || q != q || s < 1.0) return NAN_;
  if (s == 1.0) return INF;
  if (q > 0.0) return q == INF ? 0.0 : ZetaPositive(s, q);
  const double down = __builtin_floor(q);
  if (q == down) return INF;
  if (s != __builtin_trunc(s)) return NAN_;
  const double above = q - down, below = 1.0 - above;
  const double passed = ZetaPositive(s, below) - ZetaPositive(s, below - down);
  const bool odd = __builtin_trunc(s * 0.5) != s * 0.5;
  return ZetaPositive(s, above) + (odd ? -passed : passed);
}
FROM_F64_2(zeta)

// ---- incomplete gamma functions (series; continued fraction by Lentz)

// x^a e^-x / Gamma(a + 1)
static inline double GammaDensity(double a, double x) {
  if (a < 16.0) return xpud_exp_f64(a * xpud_log_f64(x) - x - xpud_lgamma_f64(a + 1.0));
  const double u = (x - a) / a, v = 1.0 / (a * a);
  const double series = (1.0 / 12.0 - v * (1.0 / 360.0 - v * (1.0 / 1260.0 - v * (1.0 / 1680.0)))) / a;
  // log(1 + u) - u, as a series where it cancels
  double logarithm = xpud_log1p_f64(u) - u;
  if (__builtin_fabs(u) < 0.01) {
    logarithm = 0.0;
    for (int k = 9; k >= 2; --k) logarithm = FMA(u, logarithm, (k & 1 ? 1.0 : -1.0) / k);
    logarithm *= u * u;
  }
  return xpud_exp_f64(a * logarithm - series) / __builtin_sqrt(2.0 * PI * a);
}
#define MAX_STEPS 2000
static inline double LowerGamma(double a, double x) {
  double term = 1.0, sum = 1.0;
  for (int k = 1; k < MAX_STEPS && term > sum * 1e-17; ++k) {
    term *= x / (a + k);
    sum += term;
  }
  return sum * GammaDensity(a, x);
}
static inline double UpperGamma(double a, double x) {
  double b = x + 1.0 - a, c = 1e300, d = 1.0 / b, h = d;
  for (int k = 1; k < MAX_STEPS; ++k) {
    const double numerator = -k * (k - a);
    b += 2.0;
    d = FMA(numerator, d, b);
    d = 1.0 / (__builtin_fabs(d) < 1e-300 ? 1e-300 : d);
    c = b + numerator / c;
    c = __builtin_fabs(c) < 1e-300 ? 1e-300 : c;
    h *= c * d;
    if (__builtin_fabs(c * d - 1.0) < 1e-16) break;
  }
  return h * GammaDensity(a, x) * a;
}
// P if `lower`, else Q = 1 - P.
static inline double RegularizedGamma(double a, double x, bool lower) {
  if (!(a >= 0.0) || !(x >= 0.0)) return NAN_;
  if (a == 0.0) return x == 0.0 ? NAN_ : lower ? 1.0 : 0.0;
  if (x == 0.0) return lower ? 0.0 : 1.0;
  if (a == INF) return x == INF ? NAN_ : lower ? 0.0 : 1.0;
  if (x == INF) return lower ? 1.0 : 0.0;
  const bool series = x <= 1.1 || x <= a;
  const double y = series ? LowerGamma(a, x) : UpperGamma(a, x);
  return series == lower ? y : 1.0 - y;
}
double xpud_igamma_f64(double a, double x) { return RegularizedGamma(a, x, true); }
double xpud_igammac_f64(double a, double x) { return RegularizedGamma(a, x, false); }
FROM_F64_2(igamma)
FROM_F64_2(igammac)

// ---- the scaled error function, and the normal distribution's functions

double xpud_erfcx_f64(double x) {
  const double a = __builtin_fabs(x), v = 1.0 / (a * a);
  const double square = x * x, low = FMA(x, x, -square), power = xpud_exp_f64(square) * (1.0 + low);
  const double far =
      (1.0 - v * (0.5 - v * (0.75 - v * (1.875 - v * (6.5625 - 29.53125 * v))))) / (a * ROOT_PI);
  const double y = a < 1.0 ? power * (1.0 - ErfSmall(a)) : a < 28.0 ? ErfcScaled(a) : far;
  return x != x ? x : x < 0.0 ? (square > 800.0 ? INF : 2.0 * power - y) : y;
}
FROM_F64(erfcx)

double xpud_logndtr_f64(double x) {
  const double t = x / ROOT_2;
  return x < -1.0 ? xpud_log_f64(0.5 * xpud_erfcx_f64(-t)) - t * t : xpud_log1p_f64(-0.5 * xpud_erfc_f64(t));
}
FROM_F64(logndtr)

// The tails by Newton's steps on log erfc, which is almost a parabola.
double xpud_ndtri_f64(double p) {
  const double tail = p < 0.5 ? p : 1.0 - p;
  if (p != p || p < 0.0 || p > 1.0) return NAN_;
  if (tail == 0.0) return p < 0.5 ? -INF : INF;
  if (tail > 0.125) return ROOT_2 * xpud_erfinv_f64(2.0 * p - 1.0);
  const double l = xpud_log_f64(2.0 * tail);
  double x = __builtin_sqrt(-(l + 0.5 * xpud_log_f64(-PI * l)));
#pragma clang loop unroll(full)
  for (int step = 0; step < 4; ++step) {
    const double scaled = xpud_erfcx_f64(x);
    x += (xpud_log_f64(scaled) - x * x - l) * scaled * (0.5 * ROOT_PI);
  }
  return p < 0.5 ? -ROOT_2 * x : ROOT_2 * x;
}
FROM_F64(ndtri)

// ---- modified Bessel functions. Near 0 in x, far away in 8 / x (K: 2 / x); scaled by e^-x (K: e^x)

static const double kI0Near[30] = {
    3.3839763720473804e-1,  -3.046826723431984e-1,   1.7162090152220878e-1,  -9.4901097048047644e-2,
    4.9305284239670708e-2,  -2.3737414805899469e-2,  1.0546460394594998e-2,  -4.3243099950505759e-3,
    1.6394756169413358e-3,  -5.7637557453858237e-4,  1.8850288509584166e-4,  -5.7541950100821037e-5,
    1.6448448070728897e-5,  -4.4167383584587506e-6,  1.1173875391201037e-6,  -2.6707938539406117e-7,
    6.0469950225419189e-8,  -1.300025009986248e-8,   2.6598237246823867e-9,  -5.1897956016352629e-10,
    9.6758090353732369e-11, -1.7268262914415557e-11, 2.9550526631296398e-12, -4.8564467831119295e-13,
    7.6761854986049356e-14, -1.1685332877993452e-14, 1.715391285555133e-15,  -2.4312798465479547e-16,
    3.3307945188222381e-17, -4.4153416464793394e-18};
static const double kI0Far[25] = {
    4.0224520550705442e-1,   3.3691164782556941e-3,   6.889758346916824e-5,    2.8913705208347565e-6,
    2.0489185894690637e-7,   2.2666689904981781e-8,   3.3962320257083863e-9,   4.9406023882249696e-10,
    1.1889147107846438e-11,  -3.1499165279632414e-11, -1.3215811840447713e-11, -1.7941785315068061e-12,
    7.1801244513836662e-13,  3.8527783827421427e-13,  1.5400862175214098e-14,  -4.1505693472872221e-14,
    -9.5548466988283076e-15, 3.8116806693526224e-15,  1.7725601330565264e-15,  -3.4254856196772191e-16,
    -2.8276239805165835e-16, 3.4612228676974611e-17,  4.46562142029676e-17,    -4.8305044859441821e-18,
    -7.233180487874754e-18};
static const double kI1Near[29] = {
    1.2629359322181683e-1,  -1.7641651835783406e-1,  1.026436586898471e-1,   -5.2945981208094991e-2,
    2.4726449030626517e-2,  -1.0564084894626198e-2,  4.1564229443128882e-3,  -1.5135724506312531e-3,
    5.1228595616857577e-4,  -1.6176081582589675e-4,  4.7815651075500542e-5,  -1.3273163656039436e-5,
    3.4702513081376785e-6,  -8.5687202646954547e-7,  2.0032947535521353e-7,  -4.4450591287963281e-8,
    9.3815373864957718e-9,  -1.8872497517228293e-9,  3.625590281552117e-10,  -6.6634897235020277e-11,
    1.1736186298890902e-11, -1.9839743977649437e-12, 3.2237933659455747e-13, -5.0421855047279117e-14,
    7.6006842947354069e-15, -1.1055969477353863e-15, 1.5536319577362005e-16, -2.1114212143581661e-17,
    2.7779141127610464e-18};
static const double kI1Far[25] = {
    3.8928811750914006e-1,   -9.7610974913614684e-3,  -1.1058893876262372e-4,  -3.8825648088776904e-6,
    -2.5122362378702089e-7,  -2.6314688468895195e-8,  -3.835380385964237e-9,   -5.5897434621965838e-10,
    -1.8974958123505412e-11, 3.2526035830154882e-11,  1.4125807436613781e-11,  2.0356285441470895e-12,
    -7.1985517762459085e-13, -4.0835511110921973e-13, -2.1015418427726643e-14, 4.2724400167119514e-14,
    1.0420276984128803e-14,  -3.8144030724370078e-15, -1.8803547755107824e-15, 3.3082023109209283e-16,
    2.9626289976459501e-16,  -3.209525921993424e-17,  -4.6503053684893583e-17, 4.4143483230717079e-18,
    7.5172963108421048e-18};

double xpud_i0e_f64(double x) {
  const double a = __builtin_fabs(x);
  return a <= 8.0 ? CHEBYSHEV(kI0Near, a / 4.0 - 1.0) : CHEBYSHEV(kI0Far, 16.0 / a - 1.0) / __builtin_sqrt(a);
}
double xpud_i1e_f64(double x) {
  const double a = __builtin_fabs(x);
  const double y = a <= 8.0 ? a * CHEBYSHEV(kI1Near, a / 4.0 - 1.0)
                            : CHEBYSHEV(kI1Far, 16.0 / a - 1.0) / __builtin_sqrt(a);
  return WithSign(y, x);
}
// e^x in two factors, because it overflows before the result does
static inline double Unscaled(double y, double x) {
  const double half = xpud_exp_f64(0.5 * x);
  return y * half * half;
}
double xpud_i0_f64(double x) {
  const double a = __builtin_fabs(x);
  return a == INF ? NAN_ : Unscaled(xpud_i0e_f64(x), a);  // as PyTorch has it
}
double xpud_i1_f64(double x) {
  const double a = __builtin_fabs(x);
  return a == INF ? NAN_ : Unscaled(xpud_i1e_f64(x), a);
}
FROM_F64(i0e)
FROM_F64(i1e)
FROM_F64(i0)
FROM_F64(i1)

static const double kK0Near[10] = {8.433977275772223e-1,  7.8707899085929595e-1,  6.1525778602440722e-2,
                                   1.9458946141853283e-3, 3.3247998700597629e-5,  3.5563825166277006e-7,
                                   2.6056207418988498e-9, 1.3895141631982779e-11, 5.6352146618418467e-14,
                                   1.7966278703136083e-16};
static const double kK0Far[24] = {
    1.2201515410329777,     -3.1448101311964501e-2,  1.5698838857300534e-3,  -1.2849549581627803e-4,
    1.3949813718876499e-5,  -1.8317555227191195e-6,  2.7668136394450151e-7,  -4.6604898976879477e-8,
    8.5740340174142261e-9,  -1.6975345093890615e-9,  3.5773972814003284e-10, -7.957489244477397e-11,
    1.8559491149549266e-11, -4.5145978833745192e-12, 1.1403405882073442e-12, -2.9800969231481784e-13,
    8.0328907750683744e-14, -2.2275133267462964e-14, 6.340076476276646e-15,  -1.8485933779209072e-15,
    5.5120559994043334e-16, -1.6782311257549006e-16, 5.2103917776435541e-17, -1.6475805939842633e-17};
static const double kK1Near[10] = {-5.0892378453208251e-1,  -2.114356597763456e-1,   -1.0725575310322739e-2,
                                   -2.5132335864834033e-4,  -3.4112002554142969e-6,  -3.0267041466557711e-8,
                                   -1.8945972239916102e-10, -8.8192213962287514e-13, -3.1733487638923217e-15,
                                   -9.0921508800330671e-18};
static const double kK1Far[24] = {
    1.3603130952422213,      1.0392373657681724e-1,  -2.8578168596227794e-3,  1.9521551847135163e-4,
    -1.936197974166083e-5,   2.4064849478372171e-6,  -3.5019606030878125e-7,  5.7410841254500493e-8,
    -1.0345762465678097e-8,  2.0150497551970346e-9,  -4.1903547593419256e-10, 9.2183151876053141e-11,
    -2.129967838427791e-11,  5.1396396734823435e-12, -1.2891739609498229e-12, 3.3484196660522431e-13,
    -8.9767051820101461e-14, 2.4771544242195987e-14, -7.0198370892147689e-15, 2.0387031662398609e-15,
    -6.0570472706430178e-16, 1.8380935752430454e-16, -5.6894628491936484e-17, 1.7940510478863573e-17};

double xpud_k0e_f64(double x) {
  if (!(x > 0.0)) return x == 0.0 ? INF : NAN_;
  const double near = CHEBYSHEV(kK0Near, x * x / 2.0 - 1.0) - xpud_log_f64(x) * xpud_i0_f64(x);
  return x <= 2.0 ? near * xpud_exp_f64(x) : CHEBYSHEV(kK0Far, 4.0 / x - 1.0) / __builtin_sqrt(x);
}
double xpud_k1e_f64(double x) {
  if (!(x > 0.0)) return x == 0.0 ? INF : NAN_;
  const double near = x * CHEBYSHEV(kK1Near, x * x / 2.0 - 1.0) + xpud_log_f64(x) * xpud_i1_f64(x) + 1.0 / x;
  return x <= 2.0 ? near * xpud_exp_f64(x) : CHEBYSHEV(kK1Far, 4.0 / x - 1.0) / __builtin_sqrt(x);
}
double xpud_k0_f64(double x) { return xpud_k0e_f64(x) * (x > 0.0 ? xpud_exp_f64(-x) : 1.0); }
double xpud_k1_f64(double x) { return xpud_k1e_f64(x) * (x > 0.0 ? xpud_exp_f64(-x) : 1.0); }
FROM_F64(k0e)
FROM_F64(k1e)
FROM_F64(k0)
FROM_F64(k1)

// ---- Bessel functions. Near 0 in x^2; far away sqrt(2 / pi x) (P cos t - Q sin t), with Q x and P in (8 /
// x)^2

static const double kJ0Near[17] = {1.5772797147489012e-1,   -8.7234423528522213e-3,  2.6517861320333681e-1,
                                   -3.7009499387264978e-1,  1.5806710233209726e-1,   -3.4893769411408885e-2,
                                   4.8191800694676045e-3,   -4.6062616620627505e-4,  3.2460328821005081e-5,
                                   -1.7619469077621507e-6,  7.6081635924187819e-8,   -2.6792535305576729e-9,
                                   7.8486963144794644e-11,  -1.9438346867370166e-12, 4.1253205956343739e-14,
                                   -7.5885081254475463e-16, 1.2218515873961411e-17};
static const double kJ1Near[16] = {
    8.1044846325658115e-2,  -1.4897514506765211e-1,  1.609992623572097e-1,   -8.2680491766817907e-2,
    2.2213639654966035e-2,  -3.646940600769276e-3,   4.0503377283548218e-4,  -3.2555548668572585e-5,
    1.9858774049915167e-6,  -9.5219847567504362e-8,  3.6871337590971482e-9,  -1.1780266226958848e-10,
    3.1601545803480033e-12, -7.2217552396517734e-14, 1.4232144003513942e-15, -2.4441972916190464e-17};
static const double kY0Near[17] = {-3.3146113203284942e-2,  -2.7447430552974527e-1, 1.7903431407718266e-1,
                                   2.6156734625504664e-1,   -1.7730201278114358e-1, 4.7196689595763387e-2,
                                   -7.2879624795520792e-3,  7.5311359325777423e-4,  -5.632079141056987e-5,
                                   3.206532537654801e-6,    -1.4407233274018699e-7, 5.2487947873305161e-9,
                                   -1.5837552541812015e-10, 4.0263308183061208e-12, -8.7473412033107696e-14,
                                   1.6434898714919469e-15,  -2.6977881152566836e-17};
static const double kY1Near[16] = {
    2.5380132357417817e-3,   -1.608717304766875e-2, -9.5912045360830742e-2,  8.4451972596523458e-2,
    -2.8328123944594366e-2,  5.289897544167113e-3,  -6.414551451326356e-4,   5.5059828733387438e-5,
    -3.5380800186893499e-6,  1.7707804556154403e-7, -7.1105500498992798e-9,  2.3443379059115164e-10,
    -6.4651518414115942e-12, 1.51429151205002e-13,  -3.0511859694473253e-15, 5.3466803857286701e-17};
static const double kP0[13] = {9.9946034934751867e-1,   -5.3652204681321174e-4,  3.0751847875194746e-6,
                               -5.1705945376060977e-8,  1.6306464635151383e-9,   -7.86409137723707e-11,
                               5.1682623873491925e-12,  -4.3045788699253912e-13, 4.3265957431549406e-14,
                               -5.0690340959352361e-15, 6.7480722157338737e-16,  -1.0011513723467786e-16,
                               1.6305919233744185e-17};
static const double kQ0[15] = {-1.2444683684269607e-1,  5.4708159540893197e-4,  -5.9315987288485178e-6,
                               1.4377965798375193e-7,   -5.817532749493056e-9,  3.3760975237349908e-10,
                               -2.5653979367973078e-11, 2.404916100281365e-12,  -2.6690625482579416e-13,
                               3.4041800321963689e-14,  -4.87994410531204e-15,  7.7297031762426054e-16,
                               -1.3348852171502517e-16, 2.4865952389390515e-17, -4.9528926298865159e-18};
static const double kP1[13] = {1.0009030408600137,      8.9898983308594086e-4,   -3.9872843004889085e-6,
                               6.1776339606442985e-8,   -1.8718907491063066e-9,  8.8168986595823389e-11,
                               -5.7048636403956447e-12, 4.6991955152305424e-13,  -4.6842237839904892e-14,
                               5.4526748960447172e-15,  -7.2211808422740179e-16, 1.0667689114335412e-16,
                               -1.7312313216116335e-17};
static const double kQ1[15] = {3.742222965562826e-1,    -7.7021788393256635e-4,  7.3108922063643633e-6,
                               -1.6767825107266738e-7,  6.5833546621204433e-9,   -3.7490909505415562e-10,
                               2.8121750359748865e-11,  -2.6114525394623199e-12, 2.8774212663332234e-13,
                               -3.6490019160618378e-14, 5.2066263662267072e-15,  -8.2153180254585943e-16,
                               1.4141084390211833e-16,  -2.6267615898385292e-17, 5.2192649196714082e-18};

// `shift`: t = x - shift. Gives J if `first`, else Y.
static inline double BesselFar(double a, double p, double q, double shift, bool first) {
  const double t = a - shift, sine = xpud_sin_f64(t), cosine = xpud_cos_f64(t),
               scale = __builtin_sqrt(2.0 / (PI * a));
  return scale * (first ? p * cosine - q * sine : p * sine + q * cosine);
}
static inline double Bessel0Far(double a, bool first) {
  const double w = 128.0 / (a * a) - 1.0;
  return BesselFar(a, CHEBYSHEV(kP0, w), CHEBYSHEV(kQ0, w) / a, 0.25 * PI, first);
}
static inline double Bessel1Far(double a, bool first) {
  const double w = 128.0 / (a * a) - 1.0;
  return BesselFar(a, CHEBYSHEV(kP1, w), CHEBYSHEV(kQ1, w) / a, 0.75 * PI, first);
}
double xpud_j0_f64(double x) {
  const double a = __builtin_fabs(x);
  return a <= 8.0 ? CHEBYSHEV(kJ0Near, a * a / 32.0 - 1.0) : Bessel0Far(a, true);
}
double xpud_j1_f64(double x) {
  const double a = __builtin_fabs(x);
  return a <= 8.0 ? x * CHEBYSHEV(kJ1Near, a * a / 32.0 - 1.0) : WithSign(1.0, x) * Bessel1Far(a, true);
}
double xpud_y0_f64(double x) {
  if (!(x > 0.0)) return x == 0.0 ? -INF : NAN_;
  if (x > 8.0) return Bessel0Far(x, false);
  return CHEBYSHEV(kY0Near, x * x / 32.0 - 1.0) + 2.0 / PI * xpud_log_f64(x) * xpud_j0_f64(x);
}
double xpud_y1_f64(double x) {
  if (!(x > 0.0)) return x == 0.0 ? -INF : NAN_;
  if (x > 8.0) return Bessel1Far(x, false);
  return x * CHEBYSHEV(kY1Near, x * x / 32.0 - 1.0) + 2.0 / PI * (xpud_log_f64(x) * xpud_j1_f64(x) - 1.0 / x);
}
FROM_F64(j0)
FROM_F64(j1)
FROM_F64(y0)
FROM_F64(y1)

// ---- fractions and exponents: x = mantissa 2^exponent, 1/2 <= |mantissa| < 1

static inline int64_t ExponentOf(double x) {
  const bool tiny = __builtin_fabs(x) < 2.2250738585072014e-308;
  const uint64_t bits = Bits64(tiny ? x * 18014398509481984.0 : x);
  return (int64_t)(bits >> 52 & 0x7ff) - 1022 - (tiny ? 54 : 0);
}
static inline bool HasExponent(double x) { return __builtin_fabs(x) < INF && x != 0.0; }
double xpud_exponent_f64(double x) { return HasExponent(x) ? (double)ExponentOf(x) : 0.0; }
double xpud_mantissa_f64(double x) { return HasExponent(x) ? Scale64(x, -ExponentOf(x)) : x; }
FROM_F64(exponent)
FROM_F64(mantissa)

// The next number after x towards y: numbers of one sign are ordered as their bits are.
double xpud_nextafter_f64(double x, double y) {
  if (x != x || y != y) return NAN_;
  if (x == y) return y;
  if (x == 0.0) return WithSign(Double(1), y);
  return Double(Bits64(x) + ((x < y) == (x > 0.0) ? 1 : -1));
}
float xpud_nextafter_f32(float x, float y) {
  if (x != x || y != y) return (float)NAN_;
  if (x == y) return y;
  if (x == 0.0f) return y < 0.0f ? -Float(1) : Float(1);
  return Float(Bits32(x) + ((x < y) == (x > 0.0f) ? 1 : -1));
}

// ---- divisors (Euclid): at most 92 steps

int64_t xpud_gcd_i64(int64_t x, int64_t y) {
  uint64_t a = x < 0 ? -(uint64_t)x : (uint64_t)x, b = y < 0 ? -(uint64_t)y : (uint64_t)y;
  while (b != 0) {
    const uint64_t rest = a % b;
    a = b;
    b = rest;
  }
  return (int64_t)a;
}
int64_t xpud_lcm_i64(int64_t x, int64_t y) {
  const int64_t divisor = xpud_gcd_i64(x, y);
  if (divisor == 0) return 0;
  const uint64_t multiple = (uint64_t)(divisor == -1 ? -x : x / divisor) * (uint64_t)y;
  return (int64_t)multiple < 0 ? (int64_t)-multiple : (int64_t)multiple;
}

// ---- Airy's function. Near 0 its power series; far away e^-z / (2 sqrt(pi) x^(1/4)) f(1 / z) and
// (P cos t + Q sin t) / (sqrt(pi) |x|^(1/4)), with z = 2/3 |x|^(3/2) and t = z - pi/4

static const double kAiryFar[24] = {
    9.844053049171552e-1,   -1.4792784850104199e-2,  7.3271774654267143e-4,  -6.1259542341782499e-5,
    6.8347669755726903e-6,  -9.2372297354039816e-7,  1.4362253404380519e-7,  -2.489319422322096e-8,
    4.7097934400543278e-9,  -9.5838637081127321e-10, 2.0745855483677592e-10, -4.737267332192277e-11,
    1.1336099808224235e-11, -2.8277067823193508e-12, 7.3207120951255976e-13, -1.9599793911089722e-13,
    5.4101162570683922e-14, -1.5356466802223836e-14, 4.4723403933000248e-15, -1.3338094674756682e-15,
    4.066582046456231e-16,  -1.265583225645289e-16,  4.0151263340158711e-17, -1.2969972135960937e-17};
static const double kAiryP[17] = {9.9937088907427783e-1,   -6.2168365843741161e-4,  7.1811937743686449e-6,
                                  -2.3162698135017581e-7,  1.3216283888528756e-8,   -1.0938736172758126e-9,
                                  1.1794620737908534e-10,  -1.5518841909929856e-11, 2.386927411492466e-12,
                                  -4.16552889201035e-13,   8.0716781107414668e-14,  -1.7087573211105669e-14,
                                  3.9029451485408147e-15,  -9.5239767849070646e-16, 2.4632810885752603e-16,
                                  -6.7090774634648578e-17, 1.9139396837187071e-17};
static const double kAiryQ[21] = {6.8821705563080009e-2,   -6.089151840832694e-4,   1.3174151014089972e-5,
                                  -6.0140719129082979e-7,  4.3275373422984993e-8,   -4.2477317329547255e-9,
                                  5.2322853768344937e-10,  -7.6722909751150239e-11, 1.2923809452698711e-11,
                                  -2.43852975710829e-12,   5.0590472378720842e-13,  -1.1378513792256328e-13,
                                  2.7441377308322257e-14,  -7.0344821126325795e-15, 1.9032114367198916e-15,
                                  -5.4030405414093074e-16, 1.6016711026585233e-16,  -4.9375274403528067e-17,
                                  1.5773435797781152e-17,  -5.206129581838458e-18,  1.7706787947400164e-18};

double xpud_airy_f64(double x) {
  const double a = __builtin_fabs(x), root = __builtin_sqrt(a), z = 2.0 / 3.0 * a * root;
  if (a == INF) return NAN_;  // as PyTorch has it
  if (x > 2.0) {
    const double w = 1.8856180831641267317 / z;  // z at 2
    return xpud_exp_f64(-z) * CHEBYSHEV(kAiryFar, 2.0 * w - 1.0) / (2.0 * ROOT_PI * __builtin_sqrt(root));
  }
  if (x < -4.0) {
    const double w = 5.3333333333333333333 / z, square = 2.0 * w * w - 1.0, t = z - 0.25 * PI;  // z at 4
    const double wave =
        CHEBYSHEV(kAiryP, square) * xpud_cos_f64(t) + CHEBYSHEV(kAiryQ, square) / z * xpud_sin_f64(t);
    return wave / (ROOT_PI * __builtin_sqrt(root));
  }
  // Each term is x^3 / (3k (3k - 1)), or x^3 / (3k (3k + 1)), times the last.
  const double cube = x * x * x;
  double f = 1.0, g = x, even = 1.0, odd = x;
  for (int k = 3; k <= 75; k += 3) {
    even *= cube / (k * (k - 1));
    odd *= cube / (k * (k + 1));
    f += even;
    g += odd;
  }
  return x != x ? x : 0.35502805388781723926 * f - 0.25881940379280679841 * g;
}
FROM_F64(airy)

// ---- orthogonal polynomials of degree n, by their recurrences. A degree below 0 gives 0. Beyond MAX_DEGREE,
// which bounds the loops, closed forms: of Chebyshev's polynomials, and of the others asymptotic ones
// (Hilb's), which have few digits

#define MAX_DEGREE 4096

static inline int64_t DegreeOf(double n) { return n > 1e15 ? (int64_t)1e15 : n > -1.0 ? (int64_t)n : -1; }

// The n-th of polynomials with p[0] = 1, p[1] = `first`, p[k + 1] = 2 x p[k] - p[k - 1].
static inline double Recurred(double x, double first, int64_t n) {
  double last = 1.0, value = first;
  for (int64_t k = 1; k < n; ++k) {
    const double next = FMA(2.0 * x, value, -last);
    last = value;
    value = next;
  }
  return n < 0 ? 0.0 : n == 0 ? 1.0 : value;
}
// cos, or for x > 1 cosh, of m acos x; likewise the sine.
static inline double CosOf(double m, double x) {
  return x <= 1.0 ? xpud_cos_f64(m * xpud_acos_f64(x)) : xpud_cosh_f64(m * xpud_acosh_f64(x));
}
static inline double SinOf(double m, double x) {
  return x <= 1.0 ? xpud_sin_f64(m * xpud_acos_f64(x)) : xpud_sinh_f64(m * xpud_acosh_f64(x));
}
static inline bool IsOdd(int64_t n) { return n & 1; }

// T, U, V, W. For x < 0 by symmetry: V(-x) is W(x), but for the sign.
double xpud_chebt_f64(double x, double degree) {
  const int64_t n = DegreeOf(degree);
  const double a = __builtin_fabs(x), sign = x < 0.0 && IsOdd(n) ? -1.0 : 1.0;
  if (n > 6 && (a < 1.0 || n > MAX_DEGREE)) return sign * CosOf((double)n, a);
  return a == 1.0 && n >= 0 ? sign : Recurred(x, x, n);
}
double xpud_chebu_f64(double x, double degree) {
  const int64_t n = DegreeOf(degree);
  const double a = __builtin_fabs(x), sign = x < 0.0 && IsOdd(n) ? -1.0 : 1.0;
  if (a == 1.0 && n >= 0) return sign * (double)(n + 1);
  if (n > 8 && (a < 1.0 || n > MAX_DEGREE)) return sign * SinOf((double)n + 1.0, a) / SinOf(1.0, a);
  return Recurred(x, 2.0 * x, n);
}
static inline double ChebyshevW(double x, int64_t n) {
  if (x == 1.0) return (double)(2 * n + 1);
  if (n > 8 && (x < 1.0 || n > MAX_DEGREE)) return SinOf((double)n + 0.5, x) / SinOf(0.5, x);
  return Recurred(x, FMA(2.0, x, 1.0), n);
}
static inline double ChebyshevV(double x, int64_t n) {
  if (x == 1.0) return 1.0;
  if (n > 8 && (x < 1.0 || n > MAX_DEGREE)) return CosOf((double)n + 0.5, x) / CosOf(0.5, x);
  return Recurred(x, FMA(2.0, x, -1.0), n);
}
double xpud_chebv_f64(double x, double degree) {
  const int64_t n = DegreeOf(degree);
  if (n < 0) return 0.0;
  return x < 0.0 ? (IsOdd(n) ? -1.0 : 1.0) * ChebyshevW(-x, n) : ChebyshevV(x, n);
}
double xpud_chebw_f64(double x, double degree) {
  const int64_t n = DegreeOf(degree);
  if (n < 0) return 0.0;
  return x < 0.0 ? (IsOdd(n) ? -1.0 : 1.0) * ChebyshevV(-x, n) : ChebyshevW(x, n);
}
FROM_F64_2(chebt)
FROM_F64_2(chebu)
FROM_F64_2(chebv)
FROM_F64_2(chebw)

// p[k + 1] = scale (x p[k] - k p[k - 1]), with scale 2 or 1. NaN for degrees from which on ATen gives it.
static inline double Hermite(double x, double degree, double scale, int64_t limit) {
  const int64_t n = DegreeOf(degree);
  if (n > limit) return NAN_;
  double last = 1.0, value = scale * x;
  for (int64_t k = 1; k < n; ++k) {
    const double next = scale * (x * value - (double)k * last);
    last = value;
    value = next;
  }
  return n < 0 ? 0.0 : n == 0 ? 1.0 : value;
}
double xpud_hermh_f64(double x, double n) { return Hermite(x, n, 2.0, 512); }
double xpud_herme_f64(double x, double n) { return Hermite(x, n, 1.0, 512); }
float xpud_hermh_f32(float x, float n) { return (float)Hermite((double)x, (double)n, 2.0, 128); }
float xpud_herme_f32(float x, float n) { return (float)Hermite((double)x, (double)n, 1.0, 128); }

double xpud_laguerre_f64(double x, double degree) {
  const int64_t n = DegreeOf(degree);
  if (n < 0) return 0.0;
  if (x == 0.0 || n == 0) return 1.0;
  if (n > MAX_DEGREE) {
    const double radius = 2.0 * __builtin_sqrt(((double)n + 0.5) * __builtin_fabs(x));
    return xpud_exp_f64(0.5 * x) * (x > 0.0 ? xpud_j0_f64(radius) : xpud_i0_f64(radius));
  }
  double last = 1.0, value = 1.0 - x;
  for (int64_t k = 1; k < n; ++k) {
    const double next = ((2.0 * (double)k + 1.0 - x) * value - (double)k * last) / ((double)k + 1.0);
    last = value;
    value = next;
  }
  return value;
}
FROM_F64_2(laguerre)

double xpud_legendre_f64(double x, double degree) {
  const int64_t n = DegreeOf(degree);
  const double a = __builtin_fabs(x), sign = x < 0.0 && IsOdd(n) ? -1.0 : 1.0;
  if (n < 0) return 0.0;
  if (a == 1.0) return sign;
  if (n > MAX_DEGREE) {
    const double angle = a < 1.0 ? xpud_acos_f64(a) : xpud_acosh_f64(a), m = ((double)n + 0.5) * angle;
    const double spread = __builtin_sqrt(angle / (a < 1.0 ? xpud_sin_f64(angle) : xpud_sinh_f64(angle)));
    return sign * spread * (a < 1.0 ? xpud_j0_f64(m) : xpud_i0_f64(m));
  }
  double last = 1.0, value = x;
  for (int64_t k = 1; k < n; ++k) {
    const double next = ((2.0 * (double)k + 1.0) * x * value - (double)k * last) / ((double)k + 1.0);
    last = value;
    value = next;
  }
  return n == 0 ? 1.0 : value;
}
FROM_F64_2(legendre)

// ---- random numbers by rejection. An element has a stream of its own: Philox counters {offset + i, draw},
// where draw counts from 1. A loop ends after MOST_DRAWS with the last candidate, which happens once in 10^20
// elements.

#define MOST_DRAWS 100

typedef struct {
  int64_t seed, block;
  uint32_t draw;
} Stream;

static inline Block NextBlock(Stream* s) {
  return PhiloxAt((uint64_t)s->seed, (uint64_t)s->block, ++s->draw);
}
// 53 bits, in (0, 1)
static inline double Open(uint32_t high, uint32_t low) {
  return ((double)(int64_t)(((uint64_t)high << 32 | low) >> 11) + 0.5) * 0x1p-53;
}
static inline double Uniform(Stream* s) {
  const Block b = NextBlock(s);
  return Open(b.w[0], b.w[1]);
}

// Marsaglia and Tsang 2000, with a power of a uniform number for a < 1.
double xpud_randgamma(double a, int64_t seed, int64_t offset, int64_t i) {
  if (!(a >= 0.0)) return NAN_;
  if (a == 0.0) return 0.0;
  Stream s = {seed, offset + i, 0};
  const double boost = a < 1.0 ? xpud_exp_f64(xpud_log_f64(Uniform(&s)) / a) : 1.0;
  const double d = (a < 1.0 ? a + 1.0 : a) - 1.0 / 3.0, c = 1.0 / __builtin_sqrt(9.0 * d);
  double v = 1.0;
  for (int draw = 0; draw < MOST_DRAWS; ++draw) {
    const Block b = NextBlock(&s);
    const double radius = __builtin_sqrt(-2.0 * xpud_log_f64(Open(b.w[0], b.w[1])));
    const double x = radius * xpud_cos_f64(2.0 * PI * (double)b.w[2] * 0x1p-32);
    const double u = ((double)b.w[3] + 0.5) * 0x1p-32, root = 1.0 + c * x;
    if (root <= 0.0) continue;
    v = root * root * root;
    if (xpud_log_f64(u) < 0.5 * x * x + d - d * v + d * xpud_log_f64(v)) break;
  }
  return boost * d * v;
}

// Products of uniform numbers below a mean of 10; then Hoermann's transformed rejection (PTRS, 1993).
double xpud_randpoisson(double rate, int64_t seed, int64_t offset, int64_t i) {
  if (!(rate >= 0.0)) return NAN_;
  Stream s = {seed, offset + i, 0};
  double k = 0.0;
  if (rate < 10.0) {
    const double least = xpud_exp_f64(-rate);
    double product = Uniform(&s);
    for (int draw = 0; draw < MOST_DRAWS && product > least; ++draw, k += 1.0) product *= Uniform(&s);
    return k;
  }
  const double b = 0.931 + 2.53 * __builtin_sqrt(rate), a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), v_r = 0.9277 - 3.6224 / (b - 2.0),
               l = xpud_log_f64(rate);
  for (int draw = 0; draw < MOST_DRAWS; ++draw) {
    const Block block = NextBlock(&s);
    const double u = Open(block.w[0], block.w[1]) - 0.5, v = Open(block.w[2], block.w[3]);
    const double us = 0.5 - __builtin_fabs(u);
    k = __builtin_floor((2.0 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= v_r) break;
    if (k < 0.0 || (us < 0.013 && v > us)) continue;
    if (xpud_log_f64(v * inverse_alpha / (a / (us * us) + b)) <= k * l - rate - xpud_lgamma_f64(k + 1.0))
      break;
  }
  return k < 0.0 ? 0.0 : k;
}

// Gaps between successes (Devroye 1986) if few are expected; then Hoermann's transformed rejection (BTRS,
// 1993).
double xpud_randbinomial(double n, double p, int64_t seed, int64_t offset, int64_t i) {
  if (!(n >= 0.0) || !(p >= 0.0) || !(p <= 1.0)) return NAN_;
  n = __builtin_floor(n);
  if (n == 0.0 || p == 0.0) return 0.0;
  if (p == 1.0) return n;
  Stream s = {seed, offset + i, 0};
  const double q = p <= 0.5 ? p : 1.0 - p, expected = n * q;
  double k = 0.0;
  if (expected < 10.0) {
    const double scale = 1.0 / xpud_log1p_f64(-q);
    double at = 0.0;
    k = -1.0;
    for (int draw = 0; draw < MOST_DRAWS && at <= n; ++draw, k += 1.0)
      at += __builtin_ceil(xpud_log_f64(Uniform(&s)) * scale);
  } else {
    const double spread = __builtin_sqrt(expected * (1.0 - q)), b = 1.15 + 2.53 * spread;
    const double a = -0.0873 + 0.0248 * b + 0.01 * q, c = expected + 0.5, v_r = 0.92 - 4.2 / b;
    const double alpha = (2.83 + 5.1 / b) * spread, odds = xpud_log_f64(q / (1.0 - q));
    const double mode = __builtin_floor((n + 1.0) * q);
    const double base = xpud_lgamma_f64(mode + 1.0) + xpud_lgamma_f64(n - mode + 1.0);
    for (int draw = 0; draw < MOST_DRAWS; ++draw) {
      const Block block = NextBlock(&s);
      const double u = Open(block.w[0], block.w[1]) - 0.5, v = Open(block.w[2], block.w[3]);
      const double us = 0.5 - __builtin_fabs(u);
      k = __builtin_floor((2.0 * a / us + b) * u + c);
      if (us >= 0.07 && v <= v_r) break;
      if (k < 0.0 || k > n) continue;
      const double log_ratio =
          base - xpud_lgamma_f64(k + 1.0) - xpud_lgamma_f64(n - k + 1.0) + (k - mode) * odds;
      if (xpud_log_f64(v * alpha / (a / (us * us) + b)) <= log_ratio) break;
    }
  }
  k = k < 0.0 ? 0.0 : k > n ? n : k;
  return p <= 0.5 ? k : n - k;
}
