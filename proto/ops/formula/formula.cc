#include "proto/ops/formula/formula.h"

#include <cctype>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace xpud::formula {
namespace {

struct Infix {
  std::string_view token;
  int precedence;  // higher binds tighter, as in C
  Op op;
};

// Longer tokens come first, so that "<=" is not read as "<".
constexpr Infix kInfix[] = {
    {"||", 1, Op::kOr},   {"&&", 2, Op::kAnd},   {"==", 6, Op::kEq},    {"!=", 6, Op::kNe},
    {"<=", 7, Op::kLe},   {">=", 7, Op::kGe},    {"<<", 8, Op::kShl},   {">>", 8, Op::kShr},
    {"|", 3, Op::kBitOr}, {"^", 4, Op::kBitXor}, {"&", 5, Op::kBitAnd}, {"<", 7, Op::kLt},
    {">", 7, Op::kGt},    {"+", 9, Op::kAdd},    {"-", 9, Op::kSub},    {"*", 10, Op::kMul},
    {"/", 10, Op::kDiv},
};

constexpr std::pair<std::string_view, Variable> kVariables[] = {
    {"a", Variable::kA},     {"b", Variable::kB},        {"c", Variable::kC},     {"d", Variable::kD},
    {"e", Variable::kE},     {"f", Variable::kF},        {"g", Variable::kG},     {"h", Variable::kH},
    {"i", Variable::kIndex}, {"k", Variable::kPosition}, {"n", Variable::kCount}, {"p", Variable::kP},
    {"q", Variable::kQ},     {"r", Variable::kR},        {"s", Variable::kS},     {"p2", Variable::kP2},
    {"q2", Variable::kQ2},   {"r2", Variable::kR2},      {"s2", Variable::kS2},
};

constexpr std::pair<std::string_view, Op> kConstants[] = {
    {"pi", Op::kPi},         {"inf", Op::kInf},         {"nan", Op::kNan},
    {"lowest", Op::kLowest}, {"highest", Op::kHighest}, {"eps", Op::kEps},
};

// Recursive descent over one formula. In a reduction, a single '|' separates parts and is not an operator.
class Parser {
 public:
  Parser(std::string_view text, Expression& expression, bool bar_separates)
      : text_(text), expression_(expression), bar_separates_(bar_separates) {}

  absl::StatusOr<NodeId> Binary(int lowest_precedence) {
    ASSIGN_OR_RETURN(NodeId left, Unary());
    for (const Infix* infix = PeekInfix(); infix != nullptr && infix->precedence >= lowest_precedence;
         infix = PeekInfix()) {
      at_ += infix->token.size();
      ASSIGN_OR_RETURN(const NodeId right, Binary(infix->precedence + 1));
      left = expression_.Add({.op = infix->op, .arity = 2, .operands = {left, right}});
    }
    return left;
  }
  absl::StatusOr<NodeId> Whole() { return Binary(0); }

  bool Accept(std::string_view token) {
    SkipSpace();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  bool AtEnd() {
    SkipSpace();
    return at_ == text_.size();
  }
  absl::Status Fail(const char* expected) const {
    return absl::InvalidArgumentError(
        absl::StrCat("formula '", std::string(text_), "': expected ", expected, " at character ", at_));
  }

 private:
  void SkipSpace() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }

  const Infix* PeekInfix() {
    SkipSpace();
    for (const Infix& infix : kInfix) {
      if (text_.substr(at_, infix.token.size()) != infix.token) continue;
      return infix.token == "|" && bar_separates_ ? nullptr : &infix;
    }
    return nullptr;
  }

  absl::StatusOr<NodeId> Unary() {
    SkipSpace();
    for (const auto& [token, op] : {std::pair{"-", Op::kNeg}, {"!", Op::kNot}, {"~", Op::kBitNot}}) {
      if (!Accept(token)) continue;
      ASSIGN_OR_RETURN(const NodeId operand, Unary());
      return expression_.Add({.op = op, .arity = 1, .operands = {operand}});
    }
    return Primary();
  }

  absl::StatusOr<NodeId> Primary() {
    if (Accept("(")) {
      ASSIGN_OR_RETURN(const NodeId inner, Whole());
      if (!Accept(")")) return Fail("')'");
      return inner;
    }
    if (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) return Number();
    return Name();
  }

  absl::StatusOr<NodeId> Number() {
    const std::string rest(text_.substr(at_));
    char* end = nullptr;
    const double real = std::strtod(rest.c_str(), &end);
    const std::string spelling = rest.substr(0, static_cast<size_t>(end - rest.c_str()));
    at_ += spelling.size();
    if (spelling.find_first_of(".eE") != std::string::npos)
      return expression_.Add({.op = Op::kReal, .real = real});
    return expression_.Add({.op = Op::kInteger, .integer = std::strtoll(spelling.c_str(), nullptr, 10)});
  }

  absl::StatusOr<NodeId> Name() {
    const size_t start = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_'))
      ++at_;
    const std::string_view name = text_.substr(start, at_ - start);
    if (Accept("(")) return Call(name);
    for (const auto& [spelling, variable] : kVariables) {
      if (name == spelling) return expression_.Add({.op = Op::kVariable, .variable = variable});
    }
    for (const auto& [spelling, op] : kConstants) {
      if (name == spelling) return expression_.Add({.op = op});
    }
    return Fail("a value");
  }

  absl::StatusOr<NodeId> Call(std::string_view name) {
    Node node{.op = Op::kVariable};
    do {
      if (node.arity == 4) return Fail("at most four operands");
      ASSIGN_OR_RETURN(const NodeId operand, Whole());
      node.operands[node.arity++] = operand;
    } while (Accept(","));
    if (!Accept(")")) return Fail("')'");
    node.op = FunctionNamed(name, node.arity);
    if (node.op == Op::kVariable) return Fail("a function of that many operands");
    return expression_.Add(node);
  }

  std::string_view text_;
  Expression& expression_;
  bool bar_separates_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<MapFormula> ParseMap(std::string_view text) {
  MapFormula formula;
  Parser parser(text, formula.expression, /*bar_separates=*/false);
  do {
    ASSIGN_OR_RETURN(const NodeId root, parser.Whole());
    formula.outputs.push_back(root);
  } while (parser.Accept(";"));
  if (!parser.AtEnd()) return parser.Fail("the end");
  return formula;
}

absl::StatusOr<ReduceFormula> ParseReduce(std::string_view text) {
  ReduceFormula formula;
  Parser parser(text, formula.expression, /*bar_separates=*/true);
  do {
    ASSIGN_OR_RETURN(const NodeId init, parser.Whole());
    formula.state.push_back({.init = init, .step = -1, .merge = -1, .position = parser.Accept(":i64")});
  } while (parser.Accept(","));
  for (auto part : {&ReduceFormula::Component::step, &ReduceFormula::Component::merge}) {
    if (!parser.Accept("|")) return parser.Fail("'|'");
    for (size_t c = 0; c < formula.state.size(); ++c) {
      if (c > 0 && !parser.Accept(",")) return parser.Fail("',': one value for each state component");
      ASSIGN_OR_RETURN(const NodeId value, parser.Whole());
      formula.state[c].*part = value;
    }
  }
  if (!parser.Accept("|")) return parser.Fail("'|'");
  do {
    ASSIGN_OR_RETURN(const NodeId value, parser.Whole());
    formula.outputs.push_back(value);
  } while (parser.Accept(","));
  if (formula.state.size() > ReduceFormula::kMaxComponents)
    return parser.Fail("at most four state components");
  if (!parser.AtEnd()) return parser.Fail("the end");
  return formula;
}

}  // namespace xpud::formula
