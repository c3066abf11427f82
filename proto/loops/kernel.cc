#include "proto/loops/kernel.h"

#include <bit>
#include <iterator>

#include "proto/base/check.h"

namespace xpud::loops {
namespace {

constexpr FunctionInfo kFunctions[] = {
#define XPUD_LOOP_FUNCTION(number, name, arity, kind) {#name, arity, FunctionKind::kind},
#include "proto/loops/functions.inc"
#undef XPUD_LOOP_FUNCTION
};

// The table above is indexed by number.
constexpr uint8_t kNumbers[] = {
#define XPUD_LOOP_FUNCTION(number, name, arity, kind) number,
#include "proto/loops/functions.inc"
#undef XPUD_LOOP_FUNCTION
};
constexpr bool AreInOrder() {
  for (size_t i = 0; i < std::size(kNumbers); ++i)
    if (kNumbers[i] != i) return false;
  return true;
}
static_assert(AreInOrder());

constexpr ReductionInfo kReductions[kNumReductions] = {
    {"sum", 1, 1, true},
    {"product", 1, 1, true},
    {"min", 1, 1, true},
    {"max", 1, 1, true},
    {"xor", 1, 1, true},
    {"any", 1, 1, true},
    {"argmin", 2, 2, true},
    {"argmax", 2, 2, true},
    {"welford", 1, 3, false},
    {"welford_combine", 3, 3, false},
    {"online_softmax", 1, 2, false},
};

constexpr std::string_view kIndexNames[kNumIndexOps] = {"",   "i", "s",   "v",   "+",  "*",
                                                        "//", "%", "min", "max", "abs"};
constexpr std::string_view kStatementNames[kNumStatementKinds] = {
    "constant", "scalar", "load", "store", "atomic_add", "call",   "convert", "round",  "bitcast", "index",
    "indirect", "reduce", "scan", "part",  "mask",       "unmask", "random",  "search", "assert"};
constexpr std::string_view kRandomNames[kNumRandoms] = {"rand", "randn", "randint"};
constexpr std::string_view kRoleNames[kNumRoles] = {"scalar", "in", "out", "inout"};

template <typename Table, typename Value>
auto& Named(const Table& table, Value value) {
  const auto i = static_cast<size_t>(value);
  XPUD_CHECK(i < std::size(table));
  return table[i];
}

}  // namespace

int ArityOf(IndexOp op) {
  if (op < IndexOp::kAdd) return 0;
  return op == IndexOp::kAbs ? 1 : 2;
}

const FunctionInfo* FindFunction(uint64_t number) {
  return number < std::size(kFunctions) ? &kFunctions[number] : nullptr;
}

const ReductionInfo& InfoOf(Reduction reduction) { return Named(kReductions, reduction); }
std::string_view NameOf(IndexOp op) { return Named(kIndexNames, op); }
std::string_view NameOf(StatementKind kind) { return Named(kStatementNames, kind); }
std::string_view NameOf(Random random) { return Named(kRandomNames, random); }
std::string_view NameOf(Role role) { return Named(kRoleNames, role); }

bool operator==(const Statement& a, const Statement& b) {
  return a.kind == b.kind && a.type == b.type && a.from == b.from && a.function == b.function &&
         a.reduction == b.reduction && a.flag == b.flag && a.operand == b.operand && a.index == b.index &&
         a.bound == b.bound && a.values == b.values && a.integer == b.integer &&
         std::bit_cast<uint64_t>(a.real) == std::bit_cast<uint64_t>(b.real);
}

}  // namespace xpud::loops
