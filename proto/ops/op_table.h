// The op table: the single source of each device operation. A row gives the op's wire number, its ATen
// overloads, family, formula and element types. The shape rule, validation, kernels, PyTorch registration and
// documentation follow from the row and its family. See proto/README.md for how to add one.
//
// An op takes operands in a fixed order: outputs, then inputs. Any input of a map may be a tensor or an
// immediate (a scalar sent in the command). Other families take tensors as inputs and numbers as attributes.
//
// Formulas
//
// clang-format off
// Inputs are a, b, c, d, e, f, g, h in order. Each is loaded and converted to the command's compute type (f32 for f16 and
// bf16); the result is converted to the output's type. ';' separates the formulas of several outputs.
//   operators   + - * /  unary -  == != < <= > >=  ! && ||  & | ^ ~ << >>  parentheses, numbers
//   types       a comparison, ! && || give bool; elsewhere bool counts as 0 or 1
//   functions   abs neg sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan
//               sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma sigmoid
//               floor ceil round (to even) trunc sign (sgn)
//               min max (NaN wins, as in ATen's minimum and maximum)  fmin fmax (the number wins)
//               pow(x,y) atan2(y,x) fmod(x,y) remainder(x,y) (sign of y) floordiv(x,y) truncdiv(x,y)
//               hypot(x,y) copysign(x,y) where(cond,x,y) isnan isinf isfinite fma(x,y,z)
//               digamma zeta(s,q) (Hurwitz) igamma(a,x) igammac(a,x) (regularised) erfcx logndtr ndtri
//               i0 i1 i0e i1e k0 k1 k0e k1e j0 j1 y0 y1 (Bessel; e: scaled by an exponential)
//               airy; polynomials of degree n: chebt(x,n) chebu chebv chebw hermh herme laguerre legendre
//               mantissa exponent (frexp) nextafter(x,y); gcd(x,y) lcm(x,y) (integers)
//               stored(x): x rounded to the first output's type (maps only)
//   constants   pi inf nan lowest highest (of the compute type: -inf and inf for floats)
//               eps: the distance from 1 to the next number of the compute type
//   index       i: the element's row-major position in the output (i64)
//   random      rand(seed, offset): uniform in [0,1)    randn(seed, offset): standard normal
//               randgamma(a, seed, offset)  randpoisson(rate, seed, offset)  randbinomial(n, p, seed, offset): by
//               rejection; element i takes counters {offset + i, 1}, {offset + i, 2}, ..
//               randint(seed, offset): 64 random bits as i64
//               Philox4x32-10 with key = seed, counter = {offset + i/4 (64 bits), 0, 0}; element i takes word
//               i%4. randint, and rand in f64 (53 bits of it), take words i%2*2 and the next, counter offset +
//               i/2. randn: Box-Muller on the words of pair (i%4)/2.
//
// A reduction has four parts: init | step | merge | finish. The state is a tuple p, q, r, s (',' separates its
// components) of the accumulate type: f32 for f16, bf16 and f32; f64 for f64; i64 for integers and bool. The
// suffix `:i64` in init, as in `-1:i64`, makes a component i64, for positions.
//   step        uses the state, the element a and its position k in the reduced row (i64)
//   merge       uses p, q, r, s and the other state's p2, q2, r2, s2. Lanes interleave, so either state may have
//               the earlier positions: a merge that depends on their order must compare positions
//   finish      uses the state and the number of elements n, and gives one value for each output
// b is the row's first attribute as an immediate, if it has one. In a joint reduction, step also uses b, c, d:
// the elements of the further inputs.
// clang-format on
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "proto/ops/dtype.h"

namespace xpud::ops {

inline constexpr int kMaxRank = 8;
// Of ops without tensor lists.
inline constexpr int kMaxInputs = 8;
inline constexpr int kMaxOutputs = 6;
// Operands of a command, including those in lists, and its bytes on the wire.
inline constexpr size_t kMaxOperands = 1024;
inline constexpr size_t kMaxCommandBytes = 64 << 10;

// An op's family determines its operands: see proto/ops/families/.
enum class Family : uint8_t {
#define XPUD_FAMILY(name) k##name,
#include "proto/ops/families.inc"
#undef XPUD_FAMILY
};
inline constexpr size_t kNumFamilies = 0
#define XPUD_FAMILY(name) +1
#include "proto/ops/families.inc"
#undef XPUD_FAMILY
    ;

enum class Activation : int64_t { kNone = 0, kRelu = 1, kGelu = 2, kGeluTanh = 3 };

// How ATen's type promotion applies to a map or reduction.
enum class TypeRule : uint8_t {
  kPromote,     // compute = promoted inputs; out = compute
  kFloat,       // integers and bool become the default float type; out = compute
  kBool,        // compute = promoted inputs; out = bool
  kSame,        // compute = the first input's type; out = compute
  kAny,         // each operand has a type of its own (copy: any to any)
  kSum,         // reductions: integers and bool give int64 unless a dtype is requested
  kIndex,       // reductions: out = int64
  kValueIndex,  // reductions with two outputs: the input's type, and int64
};

struct Row {
  uint16_t number;        // wire number: permanent, never reused
  std::string_view aten;  // functional ATen overloads of this row, separated by '|'; their in-place and out=
                          // variants use it too
  Family family;
  uint8_t inputs;  // maximum number of inputs; the last `optional` of them may be absent
  uint8_t optional;
  // kMap, kReduce and kJointReduce: the formula. Other families: a word that distinguishes the family's rows,
  // or empty.
  std::string_view formula;
  TypeRule types;
  DTypeSet dtypes;  // allowed types of the *inputs* (compute type for maps)
  uint8_t outputs = 1;
};

// One row for each op, grouped by family, numbered in order of arrival: rows.inc. Initialized before anything
// that reads it.
extern const std::span<const Row> kRows;

inline constexpr int kMaxRowNumber = 1023;
// A bit for each row, by number. A daemon announces the rows that it knows.
using RowSet = std::array<uint64_t, (kMaxRowNumber + 1) / 64>;
const RowSet& KnownRows();
constexpr bool Contains(const RowSet& rows, const Row& row) {
  return (rows[row.number / 64] >> row.number % 64 & 1) != 0;
}

// Returns the row with wire number `number`, or nullptr.
const Row* FindRow(uint16_t number);
// Returns the row of the functional ATen overload `aten` ("add.Tensor"), or nullptr.
const Row* FindRow(std::string_view aten);
// As above, for names in our own source: an unknown name is a bug and ends the process.
const Row& RowOf(std::string_view aten);

// An immediate or an attribute: a number of either kind.
struct Number {
  bool is_integer = false;
  union {
    double real;
    int64_t integer;
  };
  constexpr Number() : real(0) {}
  static Number Real(double v) {
    Number n;
    n.real = v;
    return n;
  }
  static Number Integer(int64_t v) {
    Number n;
    n.is_integer = true;
    n.integer = v;
    return n;
  }
  double AsReal() const { return is_integer ? static_cast<double>(integer) : real; }
  // Saturates: a real out of range becomes the nearest integer, and NaN the lowest.
  int64_t AsInteger() const {
    constexpr double kLimit = 0x1p63;
    if (is_integer) return integer;
    if (!(real >= -kLimit)) return std::numeric_limits<int64_t>::min();
    return real < kLimit ? static_cast<int64_t>(real) : std::numeric_limits<int64_t>::max();
  }
};

}  // namespace xpud::ops
