#include "proto/loops/bounds.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace xpud::loops {
namespace {

using Wide = __int128;

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min(),
                  kHighest = std::numeric_limits<int64_t>::max();
// Longer sums are unknown, so that hostile expressions cost little.
constexpr size_t kMaxTerms = 32;

bool Fits(Wide value) { return value >= kLowest && value <= kHighest; }

Interval Between(Wide low, Wide high) {
  if (!Fits(low) || !Fits(high)) return {};
  return {true, static_cast<int64_t>(low), static_cast<int64_t>(high)};
}

int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b != 0 && a < 0); }
int64_t Modulo(int64_t a, int64_t b) { return a % b + (a % b < 0 ? b : 0); }

Interval ProductOf(const Interval& a, const Interval& b) {
  const Wide corners[] = {Wide{a.low} * b.low, Wide{a.low} * b.high, Wide{a.high} * b.low,
                          Wide{a.high} * b.high};
  return Between(*std::ranges::min_element(corners), *std::ranges::max_element(corners));
}

Interval AbsoluteOf(const Interval& a) {
  const Wide low = a.low, high = a.high;
  if (a.low >= 0) return a;
  if (a.high <= 0) return Between(-high, -low);
  return Between(0, std::max(-low, high));
}

}  // namespace

Bounds::Bounds(const Body& body, std::span<const int64_t> sizes) : body_(body) {
  nodes_.reserve(body.indices.size());
  for (const IndexNode& node : body.indices) nodes_.push_back(Compute(node, sizes));
  FindDimensions();
}

// Of all nodes that statements use. A statement is made of earlier ones.
void Bounds::FindDimensions() {
  std::vector<uint32_t> of(body_.statements.size());
  for (size_t i = 0; i < of.size(); ++i) {
    const Statement& s = body_.statements[i];
    for (const uint32_t value : s.values)
      if (value != kNone) of[i] |= of[value];
    for (const uint32_t node : {s.index, s.bound})
      if (node != kNone) of[i] |= nodes_[node].interval.known ? FindDimensions(nodes_[node].linear) : ~0u;
    if (s.kind != StatementKind::kIndirect) continue;
    for (Atom& atom : atoms_)
      if (atom.op == IndexOp::kIndirect && atom.number == i) atom.dimensions = of[i];
  }
}

uint32_t Bounds::FindDimensions(const Linear& linear) {
  uint32_t all = 0;
  for (const Term& term : linear.terms) {
    Atom& atom = atoms_[term.atom];
    if (!atom.dimensions) {
      atom.dimensions =
          atom.op == IndexOp::kIterator ? 1u << atom.number : FindDimensions(atom.a) | FindDimensions(atom.b);
    }
    all |= *atom.dimensions;
  }
  return all;
}

std::optional<int64_t> Bounds::Stride(uint32_t node, uint32_t dimension) const {
  if (!nodes_[node].interval.known) return std::nullopt;
  int64_t stride = 0;
  for (const Term& term : nodes_[node].linear.terms) {
    const Atom& atom = atoms_[term.atom];
    if (atom.op == IndexOp::kIterator && atom.number == dimension) {
      stride = term.coefficient;
    } else if (atom.dimensions.value_or(~0u) >> dimension & 1) {
      return std::nullopt;
    }
  }
  return stride;
}

bool Bounds::IsMultiple(uint32_t node, uint32_t dimension, int64_t factor) const {
  const Linear& linear = nodes_[node].linear;
  return linear.constant % factor == 0 && std::ranges::all_of(linear.terms, [&](const Term& term) {
           const Atom& atom = atoms_[term.atom];
           const bool is_iterator = atom.op == IndexOp::kIterator && atom.number == dimension;
           return is_iterator || term.coefficient % factor == 0;
         });
}

Bounds::Value Bounds::Compute(const IndexNode& node, std::span<const int64_t> sizes) {
  const auto zero_to = [](const Interval& end) {  // as if there were at least one
    return end.known ? Between(0, std::max<Wide>(Wide{end.high} - 1, 0)) : Interval{};
  };
  switch (node.op) {
    case IndexOp::kConstant:
      return Constant(node.constant);
    case IndexOp::kSize:
      return Constant(sizes[node.a]);
    case IndexOp::kIterator:
      return Leaf({.op = node.op, .number = node.a, .interval = zero_to(Extent(node.a))});
    case IndexOp::kIndirect:
      return Leaf({.op = node.op, .number = node.a, .interval = zero_to(Of(body_.statements[node.a].bound))});
    default:
      break;
  }
  const Value a = nodes_[node.a], b = ArityOf(node.op) == 2 ? nodes_[node.b] : Value{};
  if (!a.interval.known || (ArityOf(node.op) == 2 && !b.interval.known)) return {};
  switch (node.op) {
    case IndexOp::kAdd:
      return Sum(a.linear, b.linear);
    case IndexOp::kMul:
      return Product(a, b);
    case IndexOp::kFloorDiv:
    case IndexOp::kMod:
      return b.interval.low < 1 ? Value{} : Divide(a, b.interval.low, node.op == IndexOp::kMod);
    default:
      return Other(node.op, a, b);
  }
}

Bounds::Value Bounds::Constant(int64_t constant) const {
  return {.linear = {.constant = constant, .terms = {}}, .interval = {true, constant, constant}};
}

// Returns the value of an atom, which may be known already.
Bounds::Value Bounds::Leaf(Atom atom) {
  if (!atom.interval.known) return {};
  if (atom.interval.low == atom.interval.high) return Constant(atom.interval.low);
  const auto found = std::ranges::find_if(atoms_, [&](const Atom& other) {
    return other.op == atom.op && other.number == atom.number && other.divisor == atom.divisor &&
           other.a == atom.a && other.b == atom.b;
  });
  const auto number = static_cast<uint32_t>(found - atoms_.begin());
  const Interval interval = atom.interval;
  if (found == atoms_.end()) atoms_.push_back(std::move(atom));
  return {.linear = {.constant = 0, .terms = {{number, 1}}}, .interval = interval};
}

bool Bounds::Add(Linear& to, const Linear& from, int64_t factor) {
  const Wide constant = Wide{to.constant} + Wide{from.constant} * factor;
  if (!Fits(constant)) return false;
  Linear sum;
  sum.constant = static_cast<int64_t>(constant);
  auto mine = to.terms.begin();
  for (auto theirs = from.terms.begin(); mine != to.terms.end() || theirs != from.terms.end();) {
    const bool first = theirs == from.terms.end() || (mine != to.terms.end() && mine->atom <= theirs->atom);
    const bool both = first && theirs != from.terms.end() && mine->atom == theirs->atom;
    const uint32_t atom = first ? mine->atom : theirs->atom;
    const Wide coefficient =
        (first ? Wide{mine->coefficient} : 0) + (!first || both ? Wide{theirs->coefficient} * factor : 0);
    if (!Fits(coefficient)) return false;
    if (coefficient != 0) sum.terms.push_back({atom, static_cast<int64_t>(coefficient)});
    if (first) ++mine;
    if (!first || both) ++theirs;
  }
  to = std::move(sum);
  return to.terms.size() <= kMaxTerms;
}

Interval Bounds::IntervalOf(const Linear& linear) const {
  std::vector<Interval> atoms;
  for (const Term& term : linear.terms) atoms.push_back(atoms_[term.atom].interval);
  return IntervalOf(linear, atoms);
}

// `atoms`: of each term.
Interval Bounds::IntervalOf(const Linear& linear, std::span<const Interval> atoms) const {
  Wide low = linear.constant, high = linear.constant;
  for (size_t t = 0; t < linear.terms.size(); ++t) {
    const int64_t coefficient = linear.terms[t].coefficient;
    const Wide one = Wide{atoms[t].low} * coefficient, other = Wide{atoms[t].high} * coefficient;
    low += std::min(one, other);
    high += std::max(one, other);
    if (!Fits(low) || !Fits(high)) return {};
  }
  return Between(low, high);
}

Interval Bounds::Of(uint32_t node, std::span<const Limit> limits) const {
  const Value& value = nodes_[node];
  if (!value.interval.known) return {};
  std::vector<Interval> atoms;
  for (const Term& term : value.linear.terms) atoms.push_back(atoms_[term.atom].interval);
  Interval whole = value.interval;
  bool possible = true;
  const auto narrow = [&](Interval& interval, Wide low, Wide high) {
    const Wide least = std::max<Wide>(interval.low, low), most = std::min<Wide>(interval.high, high);
    possible &= least <= most;
    if (least <= most) interval = Between(least, most);
  };
  for (const Limit& limit : limits) {
    const Value& limited = nodes_[limit.node];
    if (!limited.interval.known) continue;
    // Where the node is the limited one and a constant, or contains what the limited one consists of.
    Linear difference = value.linear;
    if (Add(difference, limited.linear, -1) && difference.terms.empty())
      narrow(whole, Wide{limit.low} + difference.constant, Wide{limit.high} + difference.constant);
    if (limited.linear.terms.size() != 1) continue;
    const Term only = limited.linear.terms[0];
    const Wide low = Wide{limit.low} - limited.linear.constant,
               high = Wide{limit.high} - limited.linear.constant;
    for (size_t t = 0; t < atoms.size(); ++t) {
      if (value.linear.terms[t].atom != only.atom) continue;
      if (only.coefficient == 1) narrow(atoms[t], low, high);
      if (only.coefficient == -1) narrow(atoms[t], -high, -low);
    }
  }
  if (!possible) return {};
  const Interval sum = IntervalOf(value.linear, atoms);
  if (sum.known) narrow(whole, sum.low, sum.high);
  return possible ? whole : Interval{};
}

Bounds::Value Bounds::Made(Linear linear) {
  while (Join(linear)) {
  }
  const Interval interval = IntervalOf(linear);
  return interval.known ? Value{std::move(linear), interval} : Value{};
}

// Replaces k * (x % c) + k c * y, where y is x // c, by k * x, and where y is (x // c) % d, by k * (x % (c
// d)). Returns false if there is no such pair.
bool Bounds::Join(Linear& linear) {
  for (const Term low : linear.terms) {
    const Atom remainder = atoms_[low.atom];
    if (remainder.op != IndexOp::kMod) continue;
    for (const Term high : linear.terms) {
      const Atom& quotient = atoms_[high.atom];
      if (Wide{low.coefficient} * remainder.divisor != high.coefficient) continue;
      Linear joined = linear;
      const auto drops = [&](const Term& term) { return term == low || term == high; };
      std::erase_if(joined.terms, drops);
      if (quotient.op == IndexOp::kFloorDiv && quotient.divisor == remainder.divisor &&
          quotient.a == remainder.a) {
        if (!Add(joined, remainder.a, low.coefficient)) return false;
        linear = std::move(joined);
        return true;
      }
      const bool nested = quotient.op == IndexOp::kMod && quotient.a.constant == 0 &&
                          quotient.a.terms.size() == 1 && quotient.a.terms[0].coefficient == 1;
      if (!nested) continue;
      const Atom& inner = atoms_[quotient.a.terms[0].atom];
      const Wide divisor = Wide{remainder.divisor} * quotient.divisor;
      if (inner.op != IndexOp::kFloorDiv || inner.divisor != remainder.divisor || !(inner.a == remainder.a) ||
          !Fits(divisor))
        continue;
      const Value x{.linear = remainder.a, .interval = IntervalOf(remainder.a)};
      const Value whole = Divide(x, static_cast<int64_t>(divisor), /*remainder=*/true);
      if (!whole.interval.known || !Add(joined, whole.linear, low.coefficient)) return false;
      linear = std::move(joined);
      return true;
    }
  }
  return false;
}

Bounds::Value Bounds::Sum(const Linear& a, const Linear& b) {
  Linear sum = a;
  return Add(sum, b, 1) ? Made(std::move(sum)) : Value{};
}

Bounds::Value Bounds::Product(const Value& a, const Value& b) {
  const bool scales = a.linear.terms.empty();
  if (!scales && !b.linear.terms.empty()) return Other(IndexOp::kMul, a, b);
  Linear product;
  return Add(product, (scales ? b : a).linear, (scales ? a : b).linear.constant) ? Made(std::move(product))
                                                                                 : Value{};
}

// What the divisor divides evenly leaves the division: (c q + r) // c is q + r // c.
Bounds::Value Bounds::Divide(const Value& a, int64_t divisor, bool remainder) {
  Linear quotient, rest;
  quotient.constant = FloorDivide(a.linear.constant, divisor);
  rest.constant = Modulo(a.linear.constant, divisor);
  for (const Term& term : a.linear.terms) {
    if (term.coefficient % divisor == 0) {
      quotient.terms.push_back({term.atom, term.coefficient / divisor});
    } else {
      rest.terms.push_back(term);
    }
  }
  const Interval left = IntervalOf(rest);
  if (!left.known) return {};
  if (left.low >= 0 && left.high < divisor) return Made(remainder ? std::move(rest) : std::move(quotient));
  Atom atom;
  atom.op = remainder ? IndexOp::kMod : IndexOp::kFloorDiv;
  atom.divisor = divisor;
  // (x // a) // b is x // (a b).
  const bool is_quotient = rest.constant == 0 && rest.terms.size() == 1 && rest.terms[0].coefficient == 1 &&
                           atoms_[rest.terms[0].atom].op == IndexOp::kFloorDiv;
  if (is_quotient && !remainder) {
    const Atom inner = atoms_[rest.terms[0].atom];
    const Wide both = Wide{inner.divisor} * divisor;
    if (Fits(both)) {
      rest = inner.a;
      atom.divisor = static_cast<int64_t>(both);
    }
  }
  const int64_t low = FloorDivide(left.low, divisor), high = FloorDivide(left.high, divisor);
  if (!remainder) {
    atom.interval = {true, low, high};
  } else if (low == high) {
    atom.interval = {true, Modulo(left.low, divisor), Modulo(left.high, divisor)};
  } else {
    atom.interval = {true, 0, divisor - 1};
  }
  atom.a = std::move(rest);
  const Value leaf = Leaf(std::move(atom));
  return remainder ? leaf : Sum(quotient, leaf.linear);
}

Bounds::Value Bounds::Other(IndexOp op, const Value& a, const Value& b) {
  Atom atom;
  atom.op = op;
  atom.a = a.linear;
  const Interval &x = a.interval, &y = b.interval;
  switch (op) {
    case IndexOp::kMul:
      atom.interval = ProductOf(x, y);
      break;
    case IndexOp::kMin:
      if (x.high <= y.low) return a;
      if (y.high <= x.low) return b;
      atom.interval = {true, std::min(x.low, y.low), std::min(x.high, y.high)};
      break;
    case IndexOp::kMax:
      if (x.low >= y.high) return a;
      if (y.low >= x.high) return b;
      atom.interval = {true, std::max(x.low, y.low), std::max(x.high, y.high)};
      break;
    default:  // kAbs
      if (x.low >= 0) return a;
      atom.interval = AbsoluteOf(x);
      return Leaf(std::move(atom));
  }
  atom.b = b.linear;
  return Leaf(std::move(atom));
}

}  // namespace xpud::loops
