#include "proto/loops/text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/loops/codec.h"

namespace xpud::loops {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// Expressions are written out as far as they stay short; longer ones refer to their nodes.
constexpr size_t kMaxExpression = 120;

// Writes the fields of a statement after its name.
class FieldWriter {
 public:
  explicit FieldWriter(const std::vector<std::string>& indices) : indices_(indices) {}

  void Type(DType type) { absl::StrAppend(&text, ".", View(ops::Info(type).name)); }
  void Function(loops::Function function) {
    const FunctionInfo* const info = FindFunction(static_cast<uint64_t>(function));
    absl::StrAppend(&text, " ", info == nullptr ? absl::string_view("?") : View(info->name));
  }
  void Reduction(loops::Reduction reduction) { absl::StrAppend(&text, " ", View(InfoOf(reduction).name)); }
  void Flag(bool flag) {
    if (flag) absl::StrAppend(&text, " flag");
  }
  void Operand(uint32_t operand) { absl::StrAppend(&text, " p", operand); }
  void Index(uint32_t index) {
    absl::StrAppend(&text, "[", index < indices_.size() ? indices_[index] : absl::StrCat("?", index), "]");
  }
  void Value(uint32_t value) { absl::StrAppend(&text, " v", value); }
  void Integer(int64_t integer) { absl::StrAppend(&text, " ", integer); }
  void Real(double real) { absl::StrAppend(&text, " ", real); }

  std::string text;

 private:
  const std::vector<std::string>& indices_;
};

std::string TextOf(const IndexNode& node, const std::vector<std::string>& earlier) {
  const auto operand = [&](uint32_t i) {
    if (i >= earlier.size()) return absl::StrCat("?", i);
    return earlier[i].size() <= kMaxExpression ? earlier[i] : absl::StrCat("x", i);
  };
  const std::string a = operand(node.a), b = operand(node.b);
  const absl::string_view name = View(NameOf(node.op));
  switch (node.op) {
    case IndexOp::kConstant:
      return absl::StrCat(node.constant);
    case IndexOp::kIterator:
    case IndexOp::kSize:
    case IndexOp::kIndirect:
      return absl::StrCat(name, node.a);
    case IndexOp::kAdd:
    case IndexOp::kMul:
    case IndexOp::kFloorDiv:
    case IndexOp::kMod:
      return absl::StrCat("(", a, " ", name, " ", b, ")");
    case IndexOp::kAbs:
      return absl::StrCat("abs(", a, ")");
    default:
      return absl::StrCat(name, "(", a, ", ", b, ")");
  }
}

void Append(const Body& body, std::string& text) {
  std::vector<std::string> indices;
  for (const IndexNode& node : body.indices) indices.push_back(TextOf(node, indices));
  const auto index = [&](uint32_t i) { return i < indices.size() ? indices[i] : absl::StrCat("?", i); };
  for (size_t d = 0; d < body.extents.size(); ++d)
    absl::StrAppend(&text, d < body.outer ? "for i" : "reduce i", d, " < ", index(body.extents[d]), "\n");
  for (size_t i = 0; i < indices.size(); ++i)
    if (indices[i].size() > kMaxExpression) absl::StrAppend(&text, "  x", i, " = ", indices[i], "\n");
  for (size_t i = 0; i < body.statements.size(); ++i) {
    const Statement& statement = body.statements[i];
    FieldWriter fields(indices);
    VisitFields(statement, fields);
    absl::StrAppend(&text, "  v", i, " = ", View(NameOf(statement.kind)), fields.text, "\n");
  }
}

}  // namespace

std::string TextOf(const Kernel& kernel) {
  std::string text;
  for (size_t i = 0; i < kernel.operands.size(); ++i)
    absl::StrAppend(&text, "p", i, ": ", View(NameOf(kernel.operands[i].role)), " ",
                    View(ops::Info(kernel.operands[i].type).name), "\n");
  if (kernel.sizes > 0) absl::StrAppend(&text, "sizes s0 to s", kernel.sizes - 1, "\n");
  for (const Body& body : kernel.bodies) Append(body, text);
  return text;
}

}  // namespace xpud::loops
