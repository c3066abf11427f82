// Makes random loop kernels that compute: of a body or two over outer and reduced dimensions, with every kind
// of statement. Indices stay in their operands, except where they are indirect.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "proto/loops/check.h"
#include "proto/loops/testing/builder.h"

namespace xpud::loops::testing {

class RandomComputation {
 public:
  explicit RandomComputation(uint64_t seed) : random_(seed) {}

  Kernel Next() {
    rows_ = 1 + Below(40);
    columns_ = 1 + Below(4) * Below(30);
    depth_ = Below(3) == 0 ? 1 + Below(5) : 1;
    kernel_ = {};
    kernel_.sizes = 3;
    static constexpr DType kInputs[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt64,
                                        DType::kInt32,   DType::kUInt8,    DType::kBool};
    for (const DType type : kInputs) kernel_.operands.push_back({type, Role::kRead});
    kernel_.operands.push_back({DType::kFloat32, Role::kScalar});
    for (int64_t bodies = 1 + Below(2); bodies > 0; --bodies) MakeBody();
    return Pruned();
  }
  std::vector<int64_t> sizes() const { return {rows_, columns_, depth_}; }
  int64_t elements() const { return rows_ * columns_ * depth_; }

 private:
  using Typed = std::pair<uint32_t, DType>;  // a statement

  int64_t Below(int64_t end) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(end)); }

  uint32_t Any(DType type) {
    std::vector<uint32_t> all;
    for (const Typed& value : values_)
      if (value.second == type) all.push_back(value.first);
    return all[static_cast<size_t>(Below(static_cast<int64_t>(all.size())))];
  }
  uint32_t Keep(uint32_t statement, DType type) {
    values_.emplace_back(statement, type);
    return statement;
  }

  void MakeBody();
  void MakeValue(BodyBuilder& b);
  void MakeReduction(BodyBuilder& b);
  void MakeBlock(BodyBuilder& b);
  void MakeStore(BodyBuilder& b, uint32_t value, DType type, uint32_t index);
  Kernel Pruned() const;

  std::mt19937_64 random_;
  int64_t rows_ = 1, columns_ = 1, depth_ = 1;
  Kernel kernel_;
  std::vector<Typed> values_;     // that a statement may use here
  std::vector<uint32_t> places_;  // indices of elements, one for each position
  uint32_t row_ = 0, position_ = 0;
  bool reduces_ = false;
};

inline void RandomComputation::MakeBody() {
  BodyBuilder b;
  values_.clear();
  const int64_t form = Below(4);  // rows x columns x depth, of which the last 0 to 2 are reduced
  reduces_ = form > 0;
  const uint32_t columns = b.Size(1), depth = b.Size(2);
  const uint32_t r = b.Dimension(b.Size(0));
  const uint32_t c = b.Dimension(columns, form >= 2), d = b.Dimension(depth, form >= 1);
  position_ = b.Add(b.Mul(b.Add(b.Mul(r, columns), c), depth), d);
  row_ = form >= 2 ? r : b.Add(b.Mul(r, columns), c);
  const uint32_t transposed = b.Add(b.Mul(b.Add(b.Mul(d, columns), c), b.Size(0)), r);
  places_ = {position_, transposed, row_};
  for (uint32_t o = 0; o < 7; ++o) {
    const DType type = ComputeTypeOf(kernel_.operands[o].type);
    Keep(b.Load(o, places_[static_cast<size_t>(Below(3))]), type);
  }
  Keep(b.Make({.kind = StatementKind::kScalar, .operand = 7}), DType::kFloat32);
  Keep(b.Real(0.5), DType::kFloat32);
  Keep(b.IndexValue(position_), DType::kInt64);
  for (int64_t count = 4 + Below(12); count > 0; --count) {
    const int64_t what = Below(8);
    if (what == 0 && reduces_) {
      MakeReduction(b);
    } else if (what == 1) {
      MakeBlock(b);
    } else {
      MakeValue(b);
    }
  }
  for (int64_t count = 1 + Below(3); count > 0; --count) {
    const Typed& value = values_[values_.size() - 1 - static_cast<size_t>(Below(6))];
    MakeStore(b, value.first, value.second, position_);
  }
  kernel_.bodies.push_back(b.body);
}

// Positions are stored to an operand of their own.
inline void RandomComputation::MakeStore(BodyBuilder& b, uint32_t value, DType type, uint32_t index) {
  const bool narrow = type == DType::kFloat32 && Below(2) == 0;
  kernel_.operands.push_back({narrow ? DType::kBFloat16 : type, Role::kUpdated});
  const auto operand = static_cast<uint32_t>(kernel_.operands.size() - 1);
  if (Below(4) == 0) {  // in place
    const uint32_t before = b.Load(operand, index);
    if (type == DType::kFloat32) value = b.Call(Function::add, type, value, before);
  }
  b.Store(operand, index, value);
  if (type == DType::kFloat32 && Below(3) == 0) Keep(b.Load(operand, index), type);
}

inline void RandomComputation::MakeValue(BodyBuilder& b) {
  static constexpr Function kReal[] = {Function::add, Function::sub, Function::min, Function::max};
  static constexpr Function kWhole[] = {Function::add, Function::sub, Function::min, Function::bitwise_xor};
  switch (Below(10)) {
    case 0:
    case 1:
    case 2: {
      const Function function = kReal[Below(4)];
      const uint32_t a = Any(DType::kFloat32), other = Any(DType::kFloat32);
      Keep(b.Call(function, DType::kFloat32, a, other), DType::kFloat32);
      return;
    }
    case 3:
      Keep(b.Call(Function::tanh, DType::kFloat32, Any(DType::kFloat32)), DType::kFloat32);
      return;
    case 4: {
      static constexpr DType kTypes[] = {DType::kInt64, DType::kInt32, DType::kUInt8};
      const DType type = kTypes[Below(3)];
      const uint32_t a = Any(type), other = Any(type);
      Keep(b.Call(kWhole[Below(4)], type, a, other), type);
      return;
    }
    case 5: {
      const uint32_t a = Any(DType::kInt32), other = Any(DType::kInt32);
      Keep(b.Call(Function::le, DType::kInt32, a, other), DType::kBool);
      return;
    }
    case 6: {
      const uint32_t condition = Any(DType::kBool), a = Any(DType::kFloat32), other = Any(DType::kFloat32);
      Keep(b.Call(Function::where, DType::kFloat32, condition, a, other), DType::kFloat32);
      return;
    }
    case 7:
      Keep(b.Convert(DType::kFloat32, Any(DType::kInt32)), DType::kFloat32);
      return;
    case 8:
      Keep(b.Make({.kind = StatementKind::kRound,
                   .type = Below(2) == 0 ? DType::kBFloat16 : DType::kFloat16,
                   .values = {Any(DType::kFloat32), kNone, kNone}}),
           DType::kFloat32);
      return;
    default:
      Keep(b.Make({.kind = StatementKind::kRandom,
                   .type = DType::kFloat32,
                   .values = {b.Integer(7), b.IndexValue(position_), kNone},
                   .integer = static_cast<int64_t>(Random::kUniform)}),
           DType::kFloat32);
      return;
  }
}

inline void RandomComputation::MakeReduction(BodyBuilder& b) {
  static constexpr Reduction kReal[] = {Reduction::kSum, Reduction::kMax, Reduction::kMin,
                                        Reduction::kWelford, Reduction::kOnlineSoftmax};
  if (Below(4) == 0) {
    const uint32_t scan = b.Make({.kind = StatementKind::kScan,
                                  .type = DType::kInt64,
                                  .reduction = Reduction::kSum,
                                  .values = {Any(DType::kInt64), kNone, kNone}});
    Keep(scan, DType::kInt64);
    return;
  }
  if (Below(3) == 0) {
    const uint32_t most =
        b.Reduce(Reduction::kArgMax, DType::kInt32, Any(DType::kInt32), b.IndexValue(position_));
    Keep(b.Make({.kind = StatementKind::kPart, .values = {most, kNone, kNone}, .integer = 1}), DType::kInt64);
    return;
  }
  const Reduction reduction = kReal[Below(5)];
  const uint32_t made = Keep(b.Reduce(reduction, DType::kFloat32, Any(DType::kFloat32)), DType::kFloat32);
  if (InfoOf(reduction).gives > 1)
    Keep(b.Make({.kind = StatementKind::kPart, .values = {made, kNone, kNone}, .integer = 1}),
         DType::kFloat32);
}

inline void RandomComputation::MakeBlock(BodyBuilder& b) {
  const uint32_t mask = Any(DType::kBool), otherwise = Any(DType::kFloat32);
  const uint32_t block = b.Make({.kind = StatementKind::kMask, .values = {mask, kNone, kNone}});
  const std::vector<Typed> outside = values_;
  // row r + 1 is outside for the last one, but not under every mask
  const uint32_t index = b.Load(6, row_);
  const uint32_t place = b.Convert(DType::kInt64, index);
  const uint32_t indirect = b.Make(
      {.kind = StatementKind::kIndirect, .flag = true, .bound = b.Size(0), .values = {place, kNone, kNone}});
  const uint32_t loaded = Keep(b.Load(0, b.Node(IndexOp::kIndirect, indirect)), DType::kFloat32);
  for (int64_t count = 1 + Below(3); count > 0; --count) MakeValue(b);
  const uint32_t inside = b.Call(Function::add, DType::kFloat32, loaded, Any(DType::kFloat32));
  b.body.statements[block].integer = static_cast<int64_t>(b.body.statements.size()) - block - 1;
  values_ = outside;
  Keep(b.Make({.kind = StatementKind::kUnmask, .values = {block, inside, otherwise}}), DType::kFloat32);
}

// Without what nothing uses.
class Pruning {
 public:
  explicit Pruning(const Body& body)
      : body_(body), statements_(body.statements.size()), nodes_(body.indices.size()) {
    for (const uint32_t extent : body.extents) UseNode(extent);
    for (uint32_t i = 0; i < body.statements.size(); ++i) {
      const StatementKind kind = body.statements[i].kind;
      if (kind == StatementKind::kStore || kind == StatementKind::kAtomicAdd ||
          kind == StatementKind::kAssert)
        Use(i);
    }
    // A block stays whole, or goes.
    for (uint32_t i = 0; i < body.statements.size(); ++i)
      if (statements_[i] && body.statements[i].kind == StatementKind::kMask)
        Use(i + 1 + static_cast<uint32_t>(body.statements[i].integer));
  }

  // `operands`: the new number of each one; those that are used get one.
  Body Made(std::vector<uint32_t>& operands, uint32_t& next_operand) const {
    const std::vector<uint32_t> statements = Numbers(statements_), nodes = Numbers(nodes_);
    const auto move = [](uint32_t& number, const std::vector<uint32_t>& to) {
      if (number != kNone) number = to[number];
    };
    Body made;
    made.outer = body_.outer;
    for (const uint32_t extent : body_.extents) made.extents.push_back(nodes[extent]);
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i]) continue;
      IndexNode node = body_.indices[i];
      if (ArityOf(node.op) > 0) node.a = nodes[node.a];
      if (ArityOf(node.op) > 1) node.b = nodes[node.b];
      if (node.op == IndexOp::kIndirect) node.a = statements[node.a];
      made.indices.push_back(node);
    }
    for (uint32_t i = 0; i < statements_.size(); ++i) {
      if (!statements_[i]) continue;
      Statement s = body_.statements[i];
      for (uint32_t& value : s.values) move(value, statements);
      move(s.index, nodes);
      move(s.bound, nodes);
      if (s.operand != kNone) {
        if (operands[s.operand] == kNone) operands[s.operand] = next_operand++;
        s.operand = operands[s.operand];
      }
      if (s.kind == StatementKind::kMask) {
        const auto first = statements_.begin() + i + 1;
        s.integer = std::count(first, first + s.integer, true);
      }
      made.statements.push_back(s);
    }
    return made;
  }

 private:
  void Use(uint32_t i) {
    if (statements_[i]) return;
    statements_[i] = true;
    const Statement& s = body_.statements[i];
    for (const uint32_t value : s.values)
      if (value != kNone) Use(value);
    for (const uint32_t node : {s.index, s.bound})
      if (node != kNone) UseNode(node);
  }
  void UseNode(uint32_t i) {
    if (nodes_[i]) return;
    nodes_[i] = true;
    const IndexNode& node = body_.indices[i];
    if (ArityOf(node.op) > 0) UseNode(node.a);
    if (ArityOf(node.op) > 1) UseNode(node.b);
    if (node.op == IndexOp::kIndirect) Use(node.a);
  }
  static std::vector<uint32_t> Numbers(const std::vector<bool>& used) {
    std::vector<uint32_t> numbers(used.size(), kNone);
    uint32_t next = 0;
    for (size_t i = 0; i < used.size(); ++i)
      if (used[i]) numbers[i] = next++;
    return numbers;
  }

  const Body& body_;
  std::vector<bool> statements_, nodes_;
};

inline Kernel RandomComputation::Pruned() const {
  Kernel pruned;
  pruned.sizes = kernel_.sizes;
  std::vector<uint32_t> operands(kernel_.operands.size(), kNone);
  uint32_t next = 0;
  for (const Body& body : kernel_.bodies) pruned.bodies.push_back(Pruning(body).Made(operands, next));
  pruned.operands.resize(next);
  for (size_t o = 0; o < operands.size(); ++o)
    if (operands[o] != kNone) pruned.operands[operands[o]] = kernel_.operands[o];
  return pruned;
}

}  // namespace xpud::loops::testing
