#include "proto/loops/check.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace xpud::loops {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }
absl::string_view NameOfType(DType type) { return View(ops::Info(type).name); }

bool IsReal(DType type) { return type == DType::kFloat32 || type == DType::kFloat64; }
bool IsInteger(DType type) { return ops::Contains(ops::kIntegerTypes, type); }

bool TakesType(FunctionKind kind, DType type) {
  switch (kind) {
    case FunctionKind::kNumeric:
      return type != DType::kBool;
    case FunctionKind::kFloating:
    case FunctionKind::kPredicate:
      return IsReal(type);
    case FunctionKind::kInteger:
      return IsInteger(type);
    case FunctionKind::kBits:
      return IsInteger(type) || type == DType::kBool;
    case FunctionKind::kLogical:
      return type == DType::kBool;
    case FunctionKind::kComparison:
    case FunctionKind::kSelection:
      return true;
  }
  return false;
}

bool TakesType(Reduction reduction, DType type) {
  switch (reduction) {
    case Reduction::kAny:
      return type == DType::kBool;
    case Reduction::kXor:
      return IsInteger(type) || type == DType::kBool;
    case Reduction::kWelford:
    case Reduction::kWelfordCombine:
    case Reduction::kOnlineSoftmax:
      return IsReal(type);
    default:
      return type != DType::kBool;
  }
}

// What may run under a mask: what writes nothing, and gives a value at each position alone.
bool MayBeMasked(StatementKind kind) {
  switch (kind) {
    case StatementKind::kStore:
    case StatementKind::kAtomicAdd:
    case StatementKind::kReduce:
    case StatementKind::kScan:
    case StatementKind::kPart:
    case StatementKind::kAssert:
      return false;
    default:
      return true;
  }
}

bool IsBuffer(const Operand& operand) { return operand.role != Role::kScalar; }

// Of an index expression.
constexpr size_t kMaxIndirects = 16;

// How the bodies before have used an operand.
struct Use {
  bool used = false, stored = false;
};

class BodyCheck {
 public:
  BodyCheck(const Kernel& kernel, size_t number, std::vector<Use>& uses)
      : kernel_(kernel),
        body_(kernel.bodies[number]),
        number_(number),
        uses_(uses),
        index_(body_.indices.size()),
        accesses_(kernel.operands.size()) {}

  absl::StatusOr<BodyInfo> Run();

 private:
  // What an index depends on.
  struct Node {
    bool is_static = true;            // constants and sizes alone
    bool is_inner = false;            // by its iterators
    std::vector<uint32_t> indirects;  // the statements that made its indirect indices, in order
    bool used = false;
  };
  // The indices of an operand's loads and stores in this body.
  struct Access {
    std::optional<uint32_t> load, store;
    bool several_loads = false, several_stores = false;
  };

  template <typename... Parts>
  absl::Status Error(const Parts&... parts) const {
    return absl::InvalidArgumentError(absl::StrCat("body ", number_, ": ", parts...));
  }
  template <typename... Parts>
  absl::Status StatementError(const Parts&... parts) const {
    return absl::InvalidArgumentError(absl::StrCat("body ", number_, ", statement ", at_, " (",
                                                   View(NameOf(Current().kind)), "): ", parts...));
  }
  const Statement& Current() const { return body_.statements[at_]; }
  StatementInfo& Info() { return info_.statements[at_]; }

  absl::Status CheckNode(uint32_t i);
  absl::Status CheckIndirect(uint32_t i);
  absl::Status CheckExtents();
  absl::Status CheckStatement();
  absl::Status CheckCall();
  absl::Status CheckMemory();
  absl::Status CheckReduction();
  absl::Status CheckPart();
  absl::Status CheckRandom();
  absl::Status BeginBlock();
  absl::Status EndBlock();
  absl::Status CheckAccesses() const;
  absl::Status CheckUsed() const;

  // Returns the type of value `which` of the statement, which must be there, and notes that it is used.
  absl::StatusOr<DType> ValueOf(int which);
  absl::Status Wants(int which, DType type);
  absl::Status UseIndex(uint32_t index, absl::string_view what);
  absl::Status UseOperand(bool is_buffer);
  // Whether what was made under `block` may be used here.
  bool IsVisible(uint32_t block) const;
  void Give(DType type) {
    Info().has_value = true;
    Info().type = type;
  }

  const Kernel& kernel_;
  const Body& body_;
  const size_t number_;
  std::vector<Use>& uses_;
  std::vector<Node> index_;
  std::vector<Access> accesses_;
  std::vector<bool> value_used_;
  struct Block {
    uint32_t mask, end;  // the statement that begins it, and its kUnmask
  };
  std::vector<Block> blocks_;  // those around the statement
  uint32_t at_ = 0;            // the statement
  BodyInfo info_;
};

absl::StatusOr<BodyInfo> BodyCheck::Run() {
  info_.statements.resize(body_.statements.size());
  value_used_.resize(body_.statements.size());
  absl::flat_hash_set<std::string> seen;
  for (uint32_t i = 0; i < body_.indices.size(); ++i) {
    const IndexNode& node = body_.indices[i];
    RETURN_IF_ERROR(CheckNode(i));
    if (!seen.insert(absl::StrCat(static_cast<int>(node.op), " ", node.a, " ", node.b, " ", node.constant))
             .second)
      return Error("index node ", i, " repeats an earlier one");
  }
  RETURN_IF_ERROR(CheckExtents());
  for (at_ = 0; at_ < body_.statements.size(); ++at_) RETURN_IF_ERROR(CheckStatement());
  if (!blocks_.empty()) return Error("the block of mask ", blocks_.back().mask, " does not end");
  RETURN_IF_ERROR(CheckAccesses());
  RETURN_IF_ERROR(CheckUsed());
  for (const Node& node : index_)
    info_.index_is_inner.push_back(node.is_inner ||
                                   std::ranges::any_of(node.indirects, [&](uint32_t statement) {
                                     return info_.statements[statement].is_inner;
                                   }));
  return std::move(info_);
}

absl::Status BodyCheck::CheckNode(uint32_t i) {
  const IndexNode& node = body_.indices[i];
  Node& made = index_[i];
  const int arity = ArityOf(node.op);
  for (int k = 0; k < arity; ++k) {
    const uint32_t from = k == 0 ? node.a : node.b;
    if (from >= i) return Error("index node ", i, " uses node ", from, ", only earlier ones may be used");
    Node& operand = index_[from];
    operand.used = true;
    made.is_static &= operand.is_static;
    made.is_inner |= operand.is_inner;
    std::vector<uint32_t> both;
    std::ranges::set_union(made.indirects, operand.indirects, std::back_inserter(both));
    made.indirects = std::move(both);
  }
  if (made.indirects.size() > kMaxIndirects)
    return Error("index node ", i, " has ", made.indirects.size(), " indirect indices, at most ",
                 kMaxIndirects, " are allowed");
  switch (node.op) {
    case IndexOp::kIterator:
      if (node.a >= body_.extents.size())
        return Error("index node ", i, " is the iterator of dimension ", node.a, "; there are ",
                     body_.extents.size());
      if (body_.extents[node.a] >= i)
        return Error("index node ", i, ": the extent of its dimension, node ", body_.extents[node.a],
                     ", must come before it");
      made.is_static = false;
      made.is_inner = node.a >= body_.outer;
      break;
    case IndexOp::kSize:
      if (node.a >= kernel_.sizes)
        return Error("index node ", i, " is size ", node.a, "; there are ", kernel_.sizes);
      break;
    case IndexOp::kIndirect:
      return CheckIndirect(i);
    case IndexOp::kFloorDiv:
    case IndexOp::kMod: {
      if (!index_[node.b].is_static)
        return Error("index node ", i, " divides by node ", node.b,
                     ", which is no expression of constants and sizes");
      const IndexNode& divisor = body_.indices[node.b];
      if (divisor.op == IndexOp::kConstant && divisor.constant < 1)
        return Error("index node ", i, " divides by ", divisor.constant, ", at least 1 is needed");
      break;
    }
    default:
      break;
  }
  return absl::OkStatus();
}

// The statement is checked later; here it is only there.
absl::Status BodyCheck::CheckIndirect(uint32_t i) {
  const uint32_t statement = body_.indices[i].a;
  if (statement >= body_.statements.size() || body_.statements[statement].kind != StatementKind::kIndirect)
    return Error("index node ", i, " uses statement ", statement, " as an index, which is no 'indirect'");
  const uint32_t bound = body_.statements[statement].bound;
  if (bound >= i)
    return Error("index node ", i, ": the bound of its 'indirect', node ", bound, ", must come before it");
  index_[i].is_static = false;
  index_[i].indirects = {statement};
  return absl::OkStatus();
}

absl::Status BodyCheck::CheckExtents() {
  if (body_.outer > body_.extents.size() || body_.extents.size() > kMaxDimensions)
    return Error(body_.outer, " outer dimensions of ", body_.extents.size(), "; at most ", kMaxDimensions,
                 " are allowed");
  for (const uint32_t extent : body_.extents) {
    if (extent >= index_.size() || !index_[extent].is_static)
      return Error("an extent is index node ", extent, ", an expression of constants and sizes is needed");
    index_[extent].used = true;
  }
  return absl::OkStatus();
}

bool BodyCheck::IsVisible(uint32_t block) const {
  return block == kNone ||
         std::ranges::any_of(blocks_, [&](const Block& open) { return open.mask == block; });
}

absl::StatusOr<DType> BodyCheck::ValueOf(int which) {
  const uint32_t value = Current().values[static_cast<size_t>(which)];
  if (value >= at_ || !info_.statements[value].has_value)
    return StatementError("value ", value, " is none of an earlier statement");
  const StatementInfo& made = info_.statements[value];
  if (!IsVisible(made.block))
    return StatementError("value ", value, " was made under mask ", made.block, " alone");
  value_used_[value] = true;
  Info().is_inner |= made.is_inner;
  return made.type;
}

absl::Status BodyCheck::Wants(int which, DType type) {
  ASSIGN_OR_RETURN(const DType found, ValueOf(which));
  if (found == type) return absl::OkStatus();
  return StatementError("value ", Current().values[static_cast<size_t>(which)], " is ", NameOfType(found),
                        ", ", NameOfType(type), " is needed");
}

absl::Status BodyCheck::UseIndex(uint32_t index, absl::string_view what) {
  if (index >= index_.size())
    return StatementError(what, " is index node ", index, "; there are ", index_.size());
  Node& node = index_[index];
  for (const uint32_t statement : node.indirects) {
    if (statement >= at_)
      return StatementError(what, " uses statement ", statement, ", which is not earlier");
    const StatementInfo& made = info_.statements[statement];
    if (!IsVisible(made.block))
      return StatementError(what, " uses statement ", statement, ", which ran under mask ", made.block,
                            " alone");
    Info().is_inner |= made.is_inner;
  }
  node.used = true;
  Info().is_inner |= node.is_inner;
  return absl::OkStatus();
}

absl::Status BodyCheck::UseOperand(bool is_buffer) {
  const uint32_t operand = Current().operand;
  if (operand >= kernel_.operands.size())
    return StatementError("operand ", operand, " does not exist; there are ", kernel_.operands.size());
  if (IsBuffer(kernel_.operands[operand]) != is_buffer)
    return StatementError("operand ", operand, " is ", is_buffer ? "a scalar" : "a buffer");
  uses_[operand].used = true;
  return absl::OkStatus();
}

absl::Status BodyCheck::CheckStatement() {
  const Statement& s = Current();
  if (!blocks_.empty()) {
    Info().block = blocks_.back().mask;
    Info().is_inner = info_.statements[blocks_.back().mask].is_inner;
    if (blocks_.back().end == at_ && s.kind != StatementKind::kUnmask)
      return StatementError("the block of mask ", blocks_.back().mask,
                            " ends here, so this must be its 'unmask'");
    if (!MayBeMasked(s.kind)) return StatementError("it may not run under a mask");
  }
  switch (s.kind) {
    case StatementKind::kConstant:
      if (ComputeTypeOf(s.type) != s.type) return StatementError(NameOfType(s.type), " is no compute type");
      if (s.type == DType::kBool && (s.integer < 0 || s.integer > 1))
        return StatementError("a bool is 0 or 1, not ", s.integer);
      Give(s.type);
      return absl::OkStatus();
    case StatementKind::kScalar:
      RETURN_IF_ERROR(UseOperand(/*is_buffer=*/false));
      Give(ComputeTypeOf(kernel_.operands[s.operand].type));
      return absl::OkStatus();
    case StatementKind::kLoad:
    case StatementKind::kStore:
    case StatementKind::kAtomicAdd:
    case StatementKind::kSearch:
      return CheckMemory();
    case StatementKind::kCall:
      return CheckCall();
    case StatementKind::kConvert:
      RETURN_IF_ERROR(ValueOf(0).status());
      if (ComputeTypeOf(s.type) != s.type)
        return StatementError(NameOfType(s.type), " is no compute type; 'round' rounds to it");
      Give(s.type);
      return absl::OkStatus();
    case StatementKind::kRound:
      if (ComputeTypeOf(s.type) == s.type)
        return StatementError(NameOfType(s.type), " is a compute type; float16 or bfloat16 is needed");
      RETURN_IF_ERROR(Wants(0, DType::kFloat32));
      Give(DType::kFloat32);
      return absl::OkStatus();
    case StatementKind::kBitcast:
      RETURN_IF_ERROR(Wants(0, ComputeTypeOf(s.from)));
      if (ops::SizeOf(s.from) != ops::SizeOf(s.type) || s.from == DType::kBool || s.type == DType::kBool)
        return StatementError("from ", NameOfType(s.from), " to ", NameOfType(s.type),
                              "; they need the same size");
      Give(ComputeTypeOf(s.type));
      return absl::OkStatus();
    case StatementKind::kIndexValue:
      RETURN_IF_ERROR(UseIndex(s.index, "the index"));
      Give(DType::kInt64);
      return absl::OkStatus();
    case StatementKind::kIndirect: {
      ASSIGN_OR_RETURN(const DType type, ValueOf(0));
      if (!IsInteger(type)) return StatementError("an index is ", NameOfType(type), ", an integer is needed");
      return UseIndex(s.bound, "the bound");
    }
    case StatementKind::kReduce:
    case StatementKind::kScan:
      return CheckReduction();
    case StatementKind::kPart:
      return CheckPart();
    case StatementKind::kMask:
      return BeginBlock();
    case StatementKind::kUnmask:
      return EndBlock();
    case StatementKind::kRandom:
      return CheckRandom();
    case StatementKind::kAssert:
      return Wants(0, DType::kBool);
  }
  return StatementError("unknown");
}

absl::Status BodyCheck::CheckCall() {
  const Statement& s = Current();
  const FunctionInfo& function = *FindFunction(static_cast<uint64_t>(s.function));
  if (ComputeTypeOf(s.type) != s.type || !TakesType(function.kind, s.type))
    return StatementError(View(function.name), " does not take ", NameOfType(s.type));
  for (int i = 0; i < function.arity; ++i)
    RETURN_IF_ERROR(Wants(i, function.kind == FunctionKind::kSelection && i == 0 ? DType::kBool : s.type));
  const bool gives_bool =
      function.kind == FunctionKind::kComparison || function.kind == FunctionKind::kPredicate;
  Give(gives_bool ? DType::kBool : s.type);
  return absl::OkStatus();
}

absl::Status BodyCheck::CheckMemory() {
  const Statement& s = Current();
  RETURN_IF_ERROR(UseOperand(/*is_buffer=*/true));
  RETURN_IF_ERROR(UseIndex(s.index, "the index"));
  const Operand& operand = kernel_.operands[s.operand];
  Use& use = uses_[s.operand];
  Access& access = accesses_[s.operand];
  const DType type = ComputeTypeOf(operand.type);
  const bool stores = s.kind == StatementKind::kStore || s.kind == StatementKind::kAtomicAdd;
  const bool reads = s.kind != StatementKind::kStore;
  if (reads && operand.role == Role::kWritten && !use.stored)
    return StatementError("operand ", s.operand,
                          " is only written, so it can be read after the body that writes it");
  if (stores && operand.role == Role::kRead) return StatementError("operand ", s.operand, " is only read");
  if (s.kind != StatementKind::kLoad) RETURN_IF_ERROR(Wants(0, type));
  std::optional<uint32_t>& known = stores ? access.store : access.load;
  (stores ? access.several_stores : access.several_loads) |= known.has_value() && *known != s.index;
  known = s.index;
  if (s.kind == StatementKind::kSearch) {
    RETURN_IF_ERROR(UseIndex(s.bound, "the number of elements"));
    access.several_loads = true;
    Give(DType::kInt64);
  }
  if (s.kind == StatementKind::kAtomicAdd) {
    if (type == DType::kBool) return StatementError("operand ", s.operand, " is bool, which has no sum");
    access.several_stores = true;
  }
  if (s.kind == StatementKind::kLoad) Give(type);
  return absl::OkStatus();
}

absl::Status BodyCheck::CheckReduction() {
  const Statement& s = Current();
  const ReductionInfo& reduction = InfoOf(s.reduction);
  const bool scans = s.kind == StatementKind::kScan;
  if (body_.outer == body_.extents.size()) return StatementError("the body has no reduced dimension");
  if (scans && !reduction.scans) return StatementError("there is no scan of ", View(reduction.name));
  if (ComputeTypeOf(s.type) != s.type || !TakesType(s.reduction, s.type))
    return StatementError(View(reduction.name), " does not take ", NameOfType(s.type));
  for (int i = 0; i < reduction.takes; ++i) {
    const bool is_position = i == 1 && reduction.takes == 2;
    RETURN_IF_ERROR(Wants(i, is_position ? DType::kInt64 : s.type));
  }
  Info().is_inner = scans;
  Give(s.type);
  return absl::OkStatus();
}

absl::Status BodyCheck::CheckPart() {
  const Statement& s = Current();
  RETURN_IF_ERROR(ValueOf(0).status());
  const Statement& from = body_.statements[s.values[0]];
  const bool reduces = from.kind == StatementKind::kReduce || from.kind == StatementKind::kScan;
  const int parts = reduces ? InfoOf(from.reduction).gives : 1;
  if (s.integer < 1 || s.integer >= parts)
    return StatementError("value ", s.integer, " of statement ", s.values[0], ", which has ", parts,
                          "; the first is the statement itself");
  Give(InfoOf(from.reduction).takes == 2 ? DType::kInt64 : from.type);
  return absl::OkStatus();
}

absl::Status BodyCheck::CheckRandom() {
  const Statement& s = Current();
  if (s.integer < 0 || s.integer >= kNumRandoms)
    return StatementError("there is no random number ", s.integer);
  const bool bits = static_cast<Random>(s.integer) == Random::kBits;
  if (bits ? s.type != DType::kInt64 : !IsReal(s.type))
    return StatementError(View(NameOf(static_cast<Random>(s.integer))), " does not give ",
                          NameOfType(s.type));
  for (const int which : {0, 1}) RETURN_IF_ERROR(Wants(which, DType::kInt64));
  Give(s.type);
  return absl::OkStatus();
}

absl::Status BodyCheck::BeginBlock() {
  const Statement& s = Current();
  RETURN_IF_ERROR(Wants(0, DType::kBool));
  if (blocks_.size() == kMaxMaskDepth)
    return StatementError("more than ", kMaxMaskDepth, " masks in each other");
  const auto left = static_cast<int64_t>(body_.statements.size()) - at_ - 1;
  const int64_t most = blocks_.empty() ? left - 1 : static_cast<int64_t>(blocks_.back().end) - at_ - 2;
  if (s.integer < 1 || s.integer > most)
    return StatementError("its block has ", s.integer, " statements, and then its 'unmask'; 1 to ",
                          std::max<int64_t>(most, 0), " fit here");
  blocks_.push_back({at_, at_ + 1 + static_cast<uint32_t>(s.integer)});
  return absl::OkStatus();
}

// Its first value is the mask, the second one of the block, the third one from outside.
absl::Status BodyCheck::EndBlock() {
  const Statement& s = Current();
  if (blocks_.empty() || blocks_.back().end != at_ || s.values[0] != blocks_.back().mask)
    return StatementError("no block of mask ", s.values[0], " ends here");
  ASSIGN_OR_RETURN(const DType type, ValueOf(1));
  const uint32_t mask = blocks_.back().mask;
  blocks_.pop_back();
  Info().block = blocks_.empty() ? kNone : blocks_.back().mask;
  Info().is_inner |= info_.statements[mask].is_inner;
  RETURN_IF_ERROR(Wants(2, type));
  Give(type);
  return absl::OkStatus();
}

// Points run in any order, so what a body writes it may read at the same place only.
absl::Status BodyCheck::CheckAccesses() const {
  for (size_t i = 0; i < accesses_.size(); ++i) {
    const Access& access = accesses_[i];
    if (!access.load || !access.store) continue;
    if (access.several_loads || access.several_stores || *access.load != *access.store)
      return Error("operand ", i, " is read and written at different indices; points run in any order");
  }
  for (const Statement& s : body_.statements)
    if (s.kind == StatementKind::kStore || s.kind == StatementKind::kAtomicAdd)
      uses_[s.operand].stored = true;
  return absl::OkStatus();
}

absl::Status BodyCheck::CheckUsed() const {
  for (size_t i = 0; i < index_.size(); ++i)
    if (!index_[i].used) return Error("index node ", i, " is not used");
  for (size_t i = 0; i < body_.statements.size(); ++i)
    if (info_.statements[i].has_value && !value_used_[i])
      return Error("the value of statement ", i, " (", View(NameOf(body_.statements[i].kind)),
                   ") is not used");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<KernelInfo> CheckKernel(const Kernel& kernel) {
  size_t arguments = kernel.sizes;
  for (const Operand& operand : kernel.operands) arguments += IsBuffer(operand) ? 2 : 1;
  if (arguments > kMaxArguments)
    return absl::InvalidArgumentError(absl::StrCat("a loop kernel has ", arguments,
                                                   " arguments (2 for a buffer), at most ", kMaxArguments,
                                                   " are allowed"));
  if (kernel.bodies.empty()) return absl::InvalidArgumentError("a loop kernel has no body");
  std::vector<Use> uses(kernel.operands.size());
  KernelInfo info;
  for (size_t i = 0; i < kernel.bodies.size(); ++i) {
    ASSIGN_OR_RETURN(BodyInfo body, BodyCheck(kernel, i, uses).Run());
    info.bodies.push_back(std::move(body));
  }
  for (size_t i = 0; i < uses.size(); ++i)
    if (!uses[i].used || (kernel.operands[i].role >= Role::kWritten && !uses[i].stored))
      return absl::InvalidArgumentError(absl::StrCat("operand ", i, " of a loop kernel is ",
                                                     View(NameOf(kernel.operands[i].role)),
                                                     ", but it is not ", uses[i].used ? "written" : "used"));
  return info;
}

}  // namespace xpud::loops
