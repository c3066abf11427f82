#include "kernels/testing/loop_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/loops/functions.h"
#include "kernels/testing/reference.h"
#include "proto/base/status_macros.h"
#include "proto/loops/call_check.h"
#include "proto/loops/testing/evaluate.h"

namespace xpud::kernels {
namespace {

using loops::kNone;
using loops::Reduction;
using loops::Statement;
using loops::StatementKind;
using ops::DType;

constexpr Exact kInfinity = std::numeric_limits<Exact>::infinity();

// The values of the functions and random numbers of formulas.
class Formula {
 public:
  Formula(Op op, int arity, DType compute) : formula_(op, arity), evaluator_(formula_.expression, compute) {}
  Exact Of(std::initializer_list<Exact> values, int64_t element = 0) {
    std::ranges::copy(values, evaluator_.variables.begin());
    evaluator_.variables[static_cast<size_t>(Variable::kIndex)] = static_cast<Exact>(element);
    return evaluator_.Evaluate(formula_.root);
  }

 private:
  const FunctionFormula formula_;
  ReferenceEvaluator evaluator_;
};

// The state of a reduction: as many values as it gives, and how many it has taken.
struct State {
  std::array<Exact, 3> values{};
  int64_t taken = 0;
};

void Take(Reduction reduction, const std::array<Exact, 3>& next, State& state) {
  auto& [x, y, z] = state.values;
  const Exact a = next[0];
  const bool first = state.taken++ == 0;
  const auto larger = [](Exact one, Exact other) { return std::isnan(one) || one > other; };
  switch (reduction) {
    case Reduction::kSum:
      x += a;
      return;
    case Reduction::kProduct:
      x = first ? a : x * a;
      return;
    case Reduction::kMin:
    case Reduction::kMax:
      if (first || (!std::isnan(x) && (reduction == Reduction::kMax ? larger(a, x) : std::isnan(a) || a < x)))
        x = a;
      return;
    case Reduction::kXor:
      x = static_cast<Exact>(static_cast<int64_t>(x) ^ static_cast<int64_t>(a));
      return;
    case Reduction::kAny:
      x = x != 0 || a != 0 ? 1 : 0;
      return;
    case Reduction::kArgMin:
    case Reduction::kArgMax: {
      const bool better = reduction == Reduction::kArgMax ? larger(a, x) : std::isnan(a) || a < x;
      const bool equal = a == x || (std::isnan(a) && std::isnan(x));
      if (first || (better && !std::isnan(x)) || (equal && next[1] < y)) x = a, y = next[1];
      return;
    }
    case Reduction::kWelford: {
      const Exact before = x;
      z += 1;
      x += (a - x) / z;
      y += (a - before) * (a - x);
      return;
    }
    case Reduction::kWelfordCombine: {
      const Exact count = z + next[2], difference = a - x;
      if (count == 0) return;
      x += difference * next[2] / count;
      y += next[1] + difference * difference * z * next[2] / count;
      z = count;
      return;
    }
    case Reduction::kOnlineSoftmax: {
      const Exact largest = first || larger(a, x) ? a : x;
      y = (first || x == -kInfinity ? 0 : y * std::exp(x - largest)) +
          (a == -kInfinity ? 0 : std::exp(a - largest));
      x = largest;
      return;
    }
  }
}

}  // namespace

// A body of a call.
class LoopReference::BodyRun {
 public:
  BodyRun(LoopReference& run, size_t number, std::vector<int64_t> extents, std::span<const int64_t> sizes,
          std::span<TestTensor* const> operands)
      : run_(run),
        number_(number),
        body_(run.kernel_.bodies[number]),
        info_(run.info_.bodies[number]),
        extents_(std::move(extents)),
        sizes_(sizes),
        operands_(operands) {
    for (size_t d = 0; d < extents_.size(); ++d) (d < body_.outer ? outer_ : inner_) *= extents_[d];
  }

  void Run() {
    for (int64_t point = 0; point < outer_; ++point) {
      point_ = point;
      values_.assign(body_.statements.size(), {});
      for (size_t i = 0; i < body_.statements.size(); ++i) RunStatement(i);
    }
  }

 private:
  using Values = std::array<std::vector<Exact>, 3>;  // by part, then position

  int64_t Positions(size_t statement) const { return info_.statements[statement].is_inner ? inner_ : 1; }

  Exact ValueOf(uint32_t statement, int64_t position, size_t part = 0) const {
    const std::vector<Exact>& values = values_[statement][part];
    return values[values.size() == 1 ? 0 : static_cast<size_t>(position)];
  }
  bool Runs(uint32_t block, int64_t position) const {
    for (; block != kNone; block = info_.statements[block].block)
      if (ValueOf(body_.statements[block].values[0], position) == 0) return false;
    return true;
  }

  int64_t Index(uint32_t at, int64_t position) const {
    std::vector<int64_t> iterators(extents_.size());
    for (size_t d = extents_.size(), outer = body_.outer, rest = static_cast<size_t>(position); d-- > 0;) {
      if (d + 1 == outer) rest = static_cast<size_t>(point_);
      const int64_t extent = std::max<int64_t>(extents_[d], 1);  // outside of empty reduced dimensions
      iterators[d] = static_cast<int64_t>(rest) % extent;
      rest /= static_cast<size_t>(extent);
    }
    const auto indirect = [&](uint32_t statement) {
      return static_cast<int64_t>(ValueOf(statement, position));
    };
    return loops::testing::Evaluate(body_, at, {iterators, sizes_, indirect});
  }

  void Fail(size_t statement, int64_t index) {
    if (!run_.failure_) run_.failure_ = Failure{number_, statement, index};
  }

  void RunStatement(size_t i) {
    const Statement& s = body_.statements[i];
    if (s.kind == StatementKind::kReduce || s.kind == StatementKind::kScan) return Reduce(i);
    const int64_t positions = Positions(i);
    for (std::vector<Exact>& part : values_[i]) part.assign(static_cast<size_t>(positions), 0);
    for (int64_t position = 0; position < positions; ++position) {
      if (!Runs(info_.statements[i].block, position)) continue;
      const Exact value = Evaluate(i, position);
      values_[i][0][static_cast<size_t>(position)] = value;
      Notice(value);
    }
  }

  void Notice(Exact value) {
    if (std::isfinite(value)) run_.magnitude_ = std::max(run_.magnitude_, std::fabs(value));
  }

  void Reduce(size_t i) {
    const Statement& s = body_.statements[i];
    const bool scans = s.kind == StatementKind::kScan;
    const loops::ReductionInfo& reduction = loops::InfoOf(s.reduction);
    const int64_t row = scans ? extents_.back() : inner_;
    State state;
    if (inner_ == 0) state.values[0] = s.reduction == Reduction::kProduct ? 1 : Identity(s.reduction);
    for (std::vector<Exact>& part : values_[i]) part.assign(static_cast<size_t>(scans ? inner_ : 1), 0);
    for (int64_t position = 0; position < inner_; ++position) {
      if (position % row == 0) state = {};
      std::array<Exact, 3> next{};
      for (int k = 0; k < reduction.takes; ++k) {
        const auto which = static_cast<size_t>(k);
        next[which] = ValueOf(s.values[which], position);
      }
      Take(s.reduction, next, state);
      for (size_t part = 0; part < 3 && scans; ++part)
        values_[i][part][static_cast<size_t>(position)] = state.values[part];
    }
    for (size_t part = 0; part < 3 && !scans; ++part) {
      values_[i][part][0] = state.values[part];
      Notice(state.values[part]);
    }
  }

  static Exact Identity(Reduction reduction) {
    const bool largest = reduction == Reduction::kMax || reduction == Reduction::kArgMax ||
                         reduction == Reduction::kOnlineSoftmax;
    const bool least = reduction == Reduction::kMin || reduction == Reduction::kArgMin;
    return largest ? -kInfinity : least ? kInfinity : 0;
  }

  Exact Evaluate(size_t i, int64_t position) {
    const Statement& s = body_.statements[i];
    const auto value = [&](int which) { return ValueOf(s.values[static_cast<size_t>(which)], position); };
    switch (s.kind) {
      case StatementKind::kConstant:
        return ops::IsFloating(s.type) ? static_cast<Exact>(s.real) : static_cast<Exact>(s.integer);
      case StatementKind::kScalar:
        return operands_[s.operand]->At(0);
      case StatementKind::kLoad:
      case StatementKind::kStore:
      case StatementKind::kAtomicAdd:
        return Access(i, position);
      case StatementKind::kCall: {
        const loops::FunctionInfo& function = *loops::FindFunction(static_cast<uint64_t>(s.function));
        Formula formula(OpOf(s.function), function.arity, s.type);
        return formula.Of({value(0), function.arity > 1 ? value(1) : 0, function.arity > 2 ? value(2) : 0});
      }
      case StatementKind::kConvert:
        if (s.type == DType::kBool) return value(0) != 0 ? 1 : 0;
        return RoundTo(s.type, ops::IsFloating(s.type) ? value(0) : std::trunc(value(0)));
      case StatementKind::kRound:
        return RoundTo(s.type, value(0));
      case StatementKind::kBitcast: {
        TestTensor from(s.from, {1}), to(s.type, {1});
        from.Set(0, value(0));
        std::memcpy(to.operand().data, from.operand().data, ops::SizeOf(s.type));
        return to.At(0);
      }
      case StatementKind::kIndexValue:
        return static_cast<Exact>(Index(s.index, position));
      case StatementKind::kIndirect: {
        const int64_t bound = Index(s.bound, position);
        auto index = static_cast<int64_t>(value(0));
        if (s.flag && index < 0) index += bound;
        if (index >= 0 && index < bound) return static_cast<Exact>(index);
        Fail(i, index);
        return 0;
      }
      case StatementKind::kPart:
        return ValueOf(s.values[0], position, static_cast<size_t>(s.integer));
      case StatementKind::kMask:
        return 0;
      case StatementKind::kUnmask:
        return Runs(s.values[0], position) ? value(1) : value(2);
      case StatementKind::kRandom: {
        Formula formula(OpOf(static_cast<loops::Random>(s.integer)), 2, s.type);
        return formula.Of({value(0), 0}, static_cast<int64_t>(value(1)));
      }
      case StatementKind::kSearch:
        return Search(i, position);
      case StatementKind::kAssert:
        if (value(0) == 0) Fail(i, 0);
        return 0;
      case StatementKind::kReduce:
      case StatementKind::kScan:
        break;
    }
    return 0;
  }

  Exact Access(size_t i, int64_t position) {
    const Statement& s = body_.statements[i];
    TestTensor& tensor = *operands_[s.operand];
    const int64_t index = Index(s.index, position);
    if (index < 0 || index >= tensor.numel()) {
      Fail(i, index);
      return 0;
    }
    if (s.kind == StatementKind::kLoad) return tensor.At(index);
    const Exact value = ValueOf(s.values[0], position);
    tensor.Set(index,
               RoundTo(tensor.dtype(), s.kind == StatementKind::kStore ? value : tensor.At(index) + value));
    return 0;
  }

  Exact Search(size_t i, int64_t position) {
    const Statement& s = body_.statements[i];
    TestTensor& tensor = *operands_[s.operand];
    const int64_t first = Index(s.index, position), count = Index(s.bound, position);
    if (first < 0 || count < 0 || first > tensor.numel() - count) {
      Fail(i, first);
      return 0;
    }
    const Exact value = ValueOf(s.values[0], position);
    int64_t before = 0;
    while (before < count &&
           (tensor.At(first + before) < value || (s.flag && tensor.At(first + before) == value)))
      ++before;
    return static_cast<Exact>(before);
  }

  LoopReference& run_;
  const size_t number_;
  const loops::Body& body_;
  const loops::BodyInfo& info_;
  const std::vector<int64_t> extents_;
  const std::span<const int64_t> sizes_;
  const std::span<TestTensor* const> operands_;
  int64_t outer_ = 1, inner_ = 1, point_ = 0;
  std::vector<Values> values_;
};

absl::Status LoopReference::Run(std::span<const int64_t> sizes, std::span<TestTensor* const> operands) {
  failure_.reset();
  magnitude_ = 0;
  std::vector<int64_t> elements;
  for (const TestTensor* const tensor : operands) elements.push_back(tensor->numel());
  ASSIGN_OR_RETURN(const loops::CallInfo call, loops::CheckCall(kernel_, info_, sizes, elements));
  for (size_t i = 0; i < kernel_.bodies.size(); ++i)
    BodyRun(*this, i, call.bodies[i].extents, sizes, operands).Run();
  return absl::OkStatus();
}

}  // namespace xpud::kernels
