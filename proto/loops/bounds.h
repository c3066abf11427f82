// Bounds of a body's index expressions for the sizes of a call.
//
// Expressions are brought into the form constant + sum of coefficient * atom, in which equal atoms cancel. An
// atom is an iterator, an indirect index, or an operation that does not distribute over sums. Parts that were
// taken from each other are joined: c * (x // c) + x % c is x, for intervals alone would lose that both
// depend on x.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "proto/loops/kernel.h"

namespace xpud::loops {

// low <= value <= high. Unknown: an intermediate result may exceed 64 bits.
struct Interval {
  bool known = false;
  int64_t low = 0, high = 0;
  bool operator==(const Interval&) const = default;
};

class Bounds {
 public:
  // REQUIRES: the body is checked (CheckKernel), and there are as many sizes as the kernel says.
  Bounds(const Body& body, std::span<const int64_t> sizes);

  // Of a node, while all iterators are inside their extents and all indirect indices inside their bounds. A
  // divisor less than 1 is unknown, and so is what uses it.
  Interval Of(uint32_t node) const { return nodes_[node].interval; }
  // low <= node <= high, which a mask ensures for what runs under it.
  struct Limit {
    uint32_t node = 0;
    int64_t low = 0, high = 0;
  };
  // Of a node where the limits hold, too. Unknown if they hold nowhere.
  Interval Of(uint32_t node, std::span<const Limit> limits) const;
  // By how much a node grows with each step along a dimension, if that is the same everywhere.
  std::optional<int64_t> Stride(uint32_t node, uint32_t dimension) const;
  // Whether a node is a multiple of `factor`, 1 or more, wherever the iterator of a dimension is one.
  // REQUIRES: the node has a stride along the dimension.
  bool IsMultiple(uint32_t node, uint32_t dimension, int64_t factor) const;
  // The extent of a dimension; unknown or negative if the sizes make it so.
  Interval Extent(size_t dimension) const { return Of(body_.extents[dimension]); }

 private:
  struct Term {
    uint32_t atom = 0;
    int64_t coefficient = 0;
    bool operator==(const Term&) const = default;
  };
  struct Linear {
    int64_t constant = 0;
    std::vector<Term> terms;  // by atom, none is 0
    bool operator==(const Linear&) const = default;
  };
  struct Atom {
    IndexOp op = IndexOp::kIterator;
    uint32_t number = 0;    // kIterator, kIndirect
    Linear a = {}, b = {};  // operands
    int64_t divisor = 0;    // kFloorDiv, kMod: of a
    Interval interval = {};
    // The dimensions, as bits, whose iterators it depends on, also through what makes its indirect indices.
    std::optional<uint32_t> dimensions = std::nullopt;
  };
  struct Value {
    Linear linear = {};
    Interval interval = {};
  };

  void FindDimensions();
  // Finds those of the atoms of a sum, and returns them together.
  uint32_t FindDimensions(const Linear& linear);
  Value Compute(const IndexNode& node, std::span<const int64_t> sizes);
  Value Leaf(Atom atom);
  Value Constant(int64_t constant) const;
  Value Sum(const Linear& a, const Linear& b);
  Value Product(const Value& a, const Value& b);
  Value Divide(const Value& a, int64_t divisor, bool remainder);
  Value Other(IndexOp op, const Value& a, const Value& b);
  // Adds factor * from; returns false if that exceeds 64 bits or the number of terms allowed.
  static bool Add(Linear& to, const Linear& from, int64_t factor);
  bool Join(Linear& linear);
  Interval IntervalOf(const Linear& linear) const;
  Interval IntervalOf(const Linear& linear, std::span<const Interval> atoms) const;
  Value Made(Linear linear);

  const Body& body_;
  std::vector<Atom> atoms_;
  std::vector<Value> nodes_;
};

}  // namespace xpud::loops
