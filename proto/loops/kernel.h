// A loop kernel: a fused kernel that a client describes as data. Plain values.
//
// A kernel has bodies that run one after another: all of one before any of the next. A body is a nest of
// loops: for each point of its outer dimensions, its statements run in their order. Where it has reduced
// dimensions too, a statement that depends on one of their iterators is *inner* and runs at all reduced
// positions before the next one; a reduction takes the values of all positions and is not inner itself, so
// that later statements, inner ones too, can use its result.
//
// Values have a compute type: f32 for f16 and bf16, else the stored type itself. A function takes and gives
// values of one type, so types change only where a statement says so.
//
// Buffers are addressed by element, from the operand's first one. Each access is proved to be inside, or
// guarded (call_check.h). A buffer that a body both reads and writes must be read and written at the same
// index: points run in any order. Points that write one element leave one of their values there, or, with
// kAtomicAdd, the sum.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "proto/ops/dtype.h"

namespace xpud::loops {

using ops::DType;

// Of a kernel. A buffer takes two of a launch's arguments, its address and its number of elements; sizes and
// scalars take one each. A launch has 128, a few of which are its own.
inline constexpr size_t kMaxArguments = 120;
inline constexpr size_t kMaxBodies = 64;
inline constexpr size_t kMaxStatements = 4096, kMaxIndices = 1024;  // of all bodies
inline constexpr size_t kMaxDimensions = 8;                         // of a body
inline constexpr int kMaxMaskDepth = 8;
// Of a definition, which fits a command.
inline constexpr size_t kMaxKernelBytes = 60 << 10;

// How an operand is used. A scalar is passed by value and only read. kUpdated buffers are read, or written in
// part.
enum class Role : uint8_t { kScalar = 0, kRead = 1, kWritten = 2, kUpdated = 3 };
inline constexpr int kNumRoles = 4;

struct Operand {
  DType type = DType::kFloat32;
  Role role = Role::kRead;
  bool operator==(const Operand&) const = default;
};

// A node of an index expression. Integers are 64 bits.
enum class IndexOp : uint8_t {
  kConstant = 0,
  kIterator = 1,  // of dimension a, from 0
  kSize = 2,      // the call's integer argument a
  kIndirect = 3,  // the checked index that statement a made
  kAdd = 4,
  kMul = 5,
  kFloorDiv = 6,  // by at least 1
  kMod = 7,       // by at least 1; not negative
  kMin = 8,
  kMax = 9,
  kAbs = 10,
};
inline constexpr int kNumIndexOps = 11;
// How many of a and b are operands: earlier nodes of the same body. What a node depends on comes before it
// too: an iterator's extent, and the bound of an indirect index.
int ArityOf(IndexOp op);

struct IndexNode {
  IndexOp op = IndexOp::kConstant;
  uint32_t a = 0, b = 0;
  int64_t constant = 0;
  bool operator==(const IndexNode&) const = default;
};

enum class FunctionKind : uint8_t {
  kNumeric,     // of any type but bool
  kFloating,    // of f32 and f64
  kInteger,     // of integers
  kBits,        // of integers and bool
  kLogical,     // of bool
  kComparison,  // of any type, gives bool
  kPredicate,   // of f32 and f64, gives bool
  kSelection,   // a bool, then two values of any type
};

enum class Function : uint8_t {
#define XPUD_LOOP_FUNCTION(number, name, arity, kind) name = number,
#include "proto/loops/functions.inc"
#undef XPUD_LOOP_FUNCTION
};

struct FunctionInfo {
  std::string_view name;
  int arity = 0;
  FunctionKind kind = FunctionKind::kNumeric;
};
// Returns null if there is no function of that number.
const FunctionInfo* FindFunction(uint64_t number);

enum class StatementKind : uint8_t {
  kConstant = 0,    // `type`: integer, or real if that is floating
  kScalar = 1,      // the value of scalar `operand`
  kLoad = 2,        // operand[index]
  kStore = 3,       // operand[index] = a, rounded to the operand's type
  kAtomicAdd = 4,   // operand[index] += a
  kCall = 5,        // function(a, b, c), computed in `type`
  kConvert = 6,     // a as `type`; floats become integers as in C
  kRound = 7,       // a rounded to the storage type `type`, and back
  kBitcast = 8,     // the bits of a, stored as `from`, read as `type`
  kIndexValue = 9,  // the value of `index` as int64
  kIndirect = 10,  // integer a, which must be in [0, bound), for kIndirect nodes; flag: a + bound if negative
  kReduce = 11,    // `reduction` of a, or of a, b and c
  kScan = 12,      // `reduction` of a up to and with this position of the last dimension
  kPart = 13,      // value `integer` of the reduction or scan a, which has several
  kMask = 14,      // the next `integer` statements run only where bool a is true
  kUnmask = 15,    // after the statements of mask a: their value b, and c where they did not run
  kRandom = 16,  // random number `integer` of seed a at position b (int64 both): `rand`, `randn` or `randint`
  kSearch = 17,  // how many of the `bound` sorted elements at operand[index] are less than a; flag: or equal
  kAssert = 18,  // fails the call where bool a is false
};
inline constexpr int kNumStatementKinds = 19;

enum class Reduction : uint8_t {
  kSum = 0,
  kProduct = 1,
  kMin = 2,  // NaN wins
  kMax = 3,
  kXor = 4,
  kAny = 5,
  kArgMin = 6,  // of value a, with position b (int64): value, position; the least position of equals
  kArgMax = 7,
  kWelford = 8,         // of a: mean, sum of squared deviations, count
  kWelfordCombine = 9,  // of a mean a, a sum of squared deviations b and a count c
  kOnlineSoftmax = 10,  // of a: largest, sum of exp(a - largest)
};
inline constexpr int kNumReductions = 11;
// How many values it takes, and gives.
struct ReductionInfo {
  std::string_view name;
  int takes = 1, gives = 1;
  bool scans = false;  // whether there is a scan of it
};
const ReductionInfo& InfoOf(Reduction reduction);

enum class Random : uint8_t { kUniform = 0, kNormal = 1, kBits = 2 };
inline constexpr int kNumRandoms = 3;

inline constexpr uint32_t kNone = UINT32_MAX;

// Members that a kind does not name in its comment have the values below. a, b and c are earlier statements
// of the body; index and bound are nodes of it.
struct Statement {
  StatementKind kind = StatementKind::kConstant;
  DType type = DType::kFloat32, from = DType::kFloat32;
  Function function = Function::add;
  Reduction reduction = Reduction::kSum;
  bool flag = false;
  uint32_t operand = kNone, index = kNone, bound = kNone;
  std::array<uint32_t, 3> values = {kNone, kNone, kNone};  // a, b, c
  int64_t integer = 0;
  double real = 0;
};
bool operator==(const Statement& a, const Statement& b);  // reals by their bits

struct Body {
  uint32_t outer = 0;             // how many of the dimensions are not reduced: the first ones
  std::vector<uint32_t> extents;  // of each dimension: an index of constants and sizes
  std::vector<IndexNode> indices;
  std::vector<Statement> statements;
  bool operator==(const Body&) const = default;
};

struct Kernel {
  std::vector<Operand> operands;
  uint32_t sizes = 0;  // how many
  std::vector<Body> bodies;
  bool operator==(const Kernel&) const = default;
};

// The type that values of a stored type have.
constexpr DType ComputeTypeOf(DType type) {
  return type == DType::kFloat16 || type == DType::kBFloat16 ? DType::kFloat32 : type;
}

// The names that the text form uses.
std::string_view NameOf(IndexOp op);
std::string_view NameOf(StatementKind kind);
std::string_view NameOf(Random random);
std::string_view NameOf(Role role);

}  // namespace xpud::loops
