#include "kernels/families/softmax.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/families/planners.h"
#include "kernels/families/row_emission.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/softmax.h"

namespace xpud::kernels {

// ---- planning

namespace {

// Limit for the exponentials of one row in scratch: half of the scratch of a kernel.
constexpr int64_t kMaxStagedRow = int64_t{2} << 20 >> 2;

constexpr int64_t kWantedGroups = 256;  // to fill a GPU

}  // namespace

SoftmaxPlanner::Operands SoftmaxPlanner::OperandsOf(const OpCall& call) {
  if (call.row->family == ops::Family::kSoftmax) {
    const auto softmax = ops::Read<ops::SoftmaxCall>(call);
    return {{softmax.out, softmax.self}, 2, softmax.dim};
  }
  const auto backward = ops::Read<ops::SoftmaxBackwardCall>(call);
  return {{backward.grad_input, backward.grad_output, backward.output}, 3, backward.dim};
}

void SoftmaxPlanner::ChooseLanes(const Operands& softmax, const Layout& kept, int64_t n,
                                 SoftmaxKey& key) const {
  if (key.columns) {
    // 32 columns of f32 are a cache line; fewer are used if there would be too few groups.
    const int64_t outer = kept.numel() / kept.inner();
    int log2 = 5;
    while (log2 > 3 && outer * CeilDiv(kept.inner(), int64_t{1} << log2) < kWantedGroups) --log2;
    key.column_lanes_log2 = log2;
    return;
  }
  if (!key.contiguous || cache_.target() != Target::kNvptx) return;
  // A row starts at a multiple of all kept strides.
  int64_t strides = 0;
  for (int o = 0; o < kept.operands; ++o) {
    for (int d = 0; d < kept.rank && kept.numel() > 1; ++d) strides |= kept.stride(o, d);
  }
  const int block =
      RowBlock(n, {softmax.list[0], softmax.list[1], softmax.list[softmax.count - 1]}, {strides});
  key.rows = PlanRows(kept.numel(), n, block, kept.operands - 1);
}

absl::StatusOr<Readiness> SoftmaxPlanner::Plan(const OpCall& call, Workspace, LaunchList& launches) {
  const Operands softmax = OperandsOf(call);
  const Operand& out = *softmax.list[0];
  const bool gpu = cache_.target() != Target::kHost;
  const auto dim = static_cast<size_t>(softmax.dim);
  const int64_t n = out.rank == 0 ? 1 : out.sizes[dim];
  Operand shape = out;
  if (out.rank > 0) shape.sizes[dim] = 1;
  Layout kept = Layout::Over(shape);
  for (size_t o = 0; o < softmax.count; ++o) kept.AddOperand(*softmax.list[o]);
  if (kept.numel() == 0 || n == 0) return Readiness::kReady;
  kept.Collapse(/*may_permute=*/true);

  SoftmaxKey key;
  key.logarithm = call.row->formula == "log";
  key.backward = softmax.count == 3;
  key.kept = kept.rank;
  key.out = out.dtype;
  key.input = softmax.list[1]->dtype;
  key.contiguous = true;
  bool kept_contiguous = kept.inner() > 1;
  for (int o = 0; o < kept.operands; ++o) {
    const Operand& operand = *softmax.list[static_cast<size_t>(o)];
    key.contiguous &= n == 1 || operand.strides[dim] == 1;
    kept_contiguous &= kept.AccessOf(o) == Access::kContiguous;
  }
  key.columns = !key.contiguous && kept_contiguous;
  const int64_t items = kept.numel();
  if (gpu) ChooseLanes(softmax, kept, n, key);
  key.staged = !key.columns && !key.backward && !key.logarithm && !gpu && n <= kMaxStagedRow;
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key));
  if (kernel == nullptr) return Readiness::kCompiling;

  const float element =
      0.5f + static_cast<float>(ops::SizeOf(out.dtype)) / 4 + (key.contiguous || key.columns ? 0.0f : 4.0f);
  Launch& launch = launches.Add();
  int64_t slice = 1;
  if (key.columns) {
    slice =
        gpu ? int64_t{1} << key.column_lanes_log2 : SliceOf(kept.inner(), element * static_cast<float>(n));
    const int64_t outer = items / kept.inner();
    launch.Reset(kernel, outer * CeilDiv(kept.inner(), slice));
  } else {
    slice = gpu ? 1 : SliceOf(items, element * static_cast<float>(n), 1);
    launch.Reset(kernel, CeilDiv(items, gpu ? key.rows.rows_a_group() : slice));
  }
  if (gpu) launch.group_size = {kGpuLanes, 1, 1};
  SoftmaxArguments<Planned> arguments;
  for (size_t o = 0; o < static_cast<size_t>(kept.operands); ++o) {
    const Operand& operand = *softmax.list[o];
    arguments.operands[o] = operand.data;
    arguments.strides[o] = out.rank == 0 ? 1 : operand.strides[dim];
  }
  SetSpace(kept, arguments.kept);
  arguments.n = n;
  arguments.items = items;
  arguments.slice = slice;
  PushArguments(key, arguments, launch);
  return Readiness::kReady;
}

// ---- emission

namespace {

using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;

class SoftmaxEmission {
 public:
  SoftmaxEmission(const SoftmaxKey& key, const SoftmaxArguments<Emitted>& arguments, Emitter& emitter)
      : key_(key), args_(arguments), e_(emitter), rows_(emitter), type_(AccumulateOf(key.input)) {}

  void Run() {
    if (key_.rows.warps) e_.UseWarps();
    if (e_.gpu() && key_.rows.blocks > 0) rows_.HoldRows(args_.n, key_.rows);
    if (key_.columns) {
      EmitColumns();
    } else {
      EmitRows();
    }
  }

 private:
  Value Stride(size_t operand) const { return key_.contiguous ? e_.I64(1) : args_.strides[operand]; }
  Value Load(size_t operand, Value offset) {
    return e_.Load(operand == 0 ? key_.out : key_.input, args_.operands[operand], offset, type_);
  }
  void Store(Value offset, Value value) { e_.Store(key_.out, args_.operands[0], offset, value, type_); }
  Value Sub(Value x, Value y) { return e_.ir().CreateFSub(x, y); }
  Value MulF(Value x, Value y) { return e_.ir().CreateFMul(x, y); }
  Value Exp(Value x) { return rows_.Math("exp", x, type_); }

  // ---- rows

  void EmitRows() {
    Value const begin = e_.Mul(e_.Team(), args_.slice);
    Value const end = e_.Min(e_.Add(begin, args_.slice), args_.items);
    e_.Loop(begin, end, e_.I64(1), [&](Value item) {
      const Values base = OffsetsOf(e_, args_.kept, item, key_.kept, operands_);
      const auto at = [&](size_t operand, Value j) {
        return e_.Add(base[operand], e_.Mul(j, Stride(operand)));
      };
      if (key_.rows.blocks > 0) {
        HeldRow(base);
      } else if (key_.backward) {
        BackwardRow(at);
      } else {
        ForwardRow(at);
      }
    });
  }

  template <typename At>
  void ForwardRow(const At& at) {
    Value const zero = e_.I64(0);
    Value const largest = rows_.Max(zero, args_.n, type_, [&](Value j) { return Load(1, at(1, j)); });
    const auto shifted = [&](Value j) { return Sub(Load(1, at(1, j)), largest); };
    const auto store = [&](Value j, Value value) { Store(at(0, j), value); };
    if (key_.logarithm) {
      Value const sum =
          rows_.Sum(zero, args_.n, type_, 1, [&](Value j) { return Values{Exp(shifted(j))}; })[0];
      Value const log = rows_.Math("log", sum, type_);
      rows_.Transform(zero, args_.n, [&](Value j) { return Sub(shifted(j), log); }, store);
      return;
    }
    Value const one = e_.Constant(type_, 1);
    if (!key_.staged) {
      Value const sum =
          rows_.Sum(zero, args_.n, type_, 1, [&](Value j) { return Values{Exp(shifted(j))}; })[0];
      Value const scale = e_.ir().CreateFDiv(one, sum);
      rows_.Transform(zero, args_.n, [&](Value j) { return MulF(Exp(shifted(j)), scale); }, store);
      return;
    }
    Value const sum = rows_.Sum(zero, args_.n, type_, 1, [&](Value j) {
      Value const e = Exp(shifted(j));
      e_.StoreRaw(e_.Scratch(), j, e);
      return Values{e};
    })[0];
    Value const scale = e_.ir().CreateFDiv(one, sum);
    rows_.Transform(
        zero, args_.n, [&](Value j) { return MulF(e_.LoadRaw(e_.TypeOf(type_), e_.Scratch(), j), scale); },
        store);
  }

  // The inputs are the gradient and the forward result.
  template <typename At>
  void BackwardRow(const At& at) {
    Value const zero = e_.I64(0);
    Value const sum = rows_.Sum(zero, args_.n, type_, 1, [&](Value j) {
      Value const g = Load(1, at(1, j));
      return Values{key_.logarithm ? g : MulF(g, Load(2, at(2, j)))};
    })[0];
    rows_.Transform(
        zero, args_.n, [&](Value j) { return Gradient(Load(1, at(1, j)), Load(2, at(2, j)), sum); },
        [&](Value j, Value value) { Store(at(0, j), value); });
  }

  // GPU: the row stays in registers.
  void HeldRow(const Values& base) {
    const auto load = [&](size_t operand) {
      return rows_.LoadHeld(key_.input, args_.operands[operand], base[operand], type_);
    };
    Values x = load(1), terms;
    if (key_.backward) {
      const Values y = load(2);
      for (size_t i = 0; i < x.size(); ++i) terms.push_back(key_.logarithm ? x[i] : MulF(x[i], y[i]));
      Value const sum = rows_.SumHeld(terms);
      for (size_t i = 0; i < x.size(); ++i) x[i] = Gradient(x[i], y[i], sum);
    } else {
      Value const largest = rows_.MaxHeld(x);
      for (Value& v : x) v = Sub(v, largest);
      for (Value v : x) terms.push_back(Exp(v));
      Value const sum = rows_.SumHeld(terms);
      Value const rest =
          key_.logarithm ? rows_.Math("log", sum, type_) : e_.ir().CreateFDiv(e_.Constant(type_, 1), sum);
      for (size_t i = 0; i < x.size(); ++i) x[i] = key_.logarithm ? Sub(x[i], rest) : MulF(terms[i], rest);
    }
    rows_.StoreHeld(key_.out, args_.operands[0], base[0], x, type_);
  }

  Value Gradient(Value g, Value y, Value sum) {
    return key_.logarithm ? Sub(g, MulF(Exp(y), sum)) : MulF(Sub(g, sum), y);
  }

  // ---- columns

  // Group x is (outer kept item, slice of columns).
  void EmitColumns() {
    Value const columns = args_.kept.sizes[static_cast<size_t>(key_.kept - 1)];
    Value const slices = e_.CeilDiv(columns, args_.slice);
    Value const item = e_.ir().CreateUDiv(e_.Group(0), slices);
    Value const begin = e_.Mul(e_.ir().CreateURem(e_.Group(0), slices), args_.slice);
    Value const end = e_.Min(e_.Add(begin, args_.slice), columns);
    const Values base = OffsetsOf(e_, args_.kept, item, key_.kept - 1, operands_);
    if (e_.gpu()) {
      ColumnPerLane(base, begin, end);
      return;
    }
    e_.Loop(begin, end, e_.I64(kColumnBlock), [&](Value first) {
      Value const count = e_.Min(e_.ir().CreateSub(end, first), e_.I64(kColumnBlock));
      Values here = base;
      for (Value& offset : here) offset = e_.Add(offset, first);
      ColumnBlock(here, count);
    });
  }

  void ColumnBlock(const Values& base, Value count) {
    llvm::Type* const type = e_.TypeOf(type_);
    Value const zero = e_.I64(0);
    Value const maxima = e_.Scratch();
    Value const sums = e_.ir().CreateInBoundsGEP(type, e_.Scratch(), e_.I64(kColumnBlock));
    const auto each = [&](const std::function<void(Value)>& body) { rows_.ForEach(zero, count, body); };
    const auto sweep = [&](const std::function<void(const Values&, Value)>& body) {
      e_.Loop(zero, args_.n, e_.I64(1), [&](Value d) {
        each([&](Value c) {
          Values at;
          for (size_t o = 0; o < operands_; ++o)
            at.push_back(e_.Add(e_.Add(base[o], e_.Mul(d, Stride(o))), c));
          body(at, c);
        });
      });
    };
    const auto add = [&](Value c, Value x) {
      e_.StoreRaw(sums, c, e_.ir().CreateFAdd(e_.LoadRaw(type, sums, c), x));
    };
    each([&](Value c) {
      e_.StoreRaw(sums, c, e_.Constant(type_, 0));
      e_.StoreRaw(maxima, c, e_.Constant(type_, -INFINITY));
    });
    if (key_.backward) {
      sweep([&](const Values& at, Value c) {
        Value const g = Load(1, at[1]);
        add(c, key_.logarithm ? g : MulF(g, Load(2, at[2])));
      });
      sweep([&](const Values& at, Value c) {
        Store(at[0], Gradient(Load(1, at[1]), Load(2, at[2]), e_.LoadRaw(type, sums, c)));
      });
      return;
    }
    sweep([&](const Values& at, Value c) {
      e_.StoreRaw(maxima, c, rows_.Maximum(e_.LoadRaw(type, maxima, c), Load(1, at[1])));
    });
    sweep([&](const Values& at, Value c) { add(c, Exp(Sub(Load(1, at[1]), e_.LoadRaw(type, maxima, c)))); });
    // Replaces the sum by the value that each element needs.
    each([&](Value c) {
      Value const sum = e_.LoadRaw(type, sums, c);
      e_.StoreRaw(
          sums, c,
          key_.logarithm ? rows_.Math("log", sum, type_) : e_.ir().CreateFDiv(e_.Constant(type_, 1), sum));
    });
    sweep([&](const Values& at, Value c) {
      Value const x = Sub(Load(1, at[1]), e_.LoadRaw(type, maxima, c)), sum = e_.LoadRaw(type, sums, c);
      Store(at[0], key_.logarithm ? Sub(x, sum) : MulF(Exp(x), sum));
    });
  }

  // GPU: neighbouring lanes take neighbouring columns, and the group's strands of lanes take rows round
  // robin. One pass computes the maximum and the sum, which is rescaled when the maximum grows; another
  // computes the result.
  void ColumnPerLane(const Values& base, Value begin, Value end) {
    const int64_t lanes = int64_t{1} << key_.column_lanes_log2, strands = int64_t{kGpuLanes} / lanes;
    Value const own = e_.Add(begin, e_.ir().CreateAnd(e_.Lane(), e_.I64(lanes - 1)));
    Value const strand = e_.ir().CreateLShr(e_.Lane(), e_.I64(key_.column_lanes_log2));
    // A lane beyond the last column repeats the work of the last one, but stores nothing.
    Value const column = e_.Min(own, e_.ir().CreateSub(end, e_.I64(1)));
    const auto at = [&](size_t o, Value d) { return e_.Add(e_.Add(base[o], column), e_.Mul(d, Stride(o))); };
    Values state =
        key_.backward ? Values{BackwardTerms(at, strand, strands)} : ForwardState(at, strand, strands);
    state = MergeStrands(state, lanes, strands);
    Value const largest = state[0], total = state.back();
    Value const rest = key_.backward    ? total
                       : key_.logarithm ? rows_.Math("log", total, type_)
                                        : e_.ir().CreateFDiv(e_.Constant(type_, 1), total);
    Value const ours = e_.ir().CreateSelect(e_.ir().CreateICmpEQ(own, column), args_.n, e_.I64(0));
    EachRow(strand, ours, strands, {}, [&](const Values& rows, const Values&) {
      Values x, y;
      for (Value d : rows) x.push_back(Load(1, at(1, d)));
      for (size_t i = 0; key_.backward && i < rows.size(); ++i) y.push_back(Load(2, at(2, rows[i])));
      for (size_t i = 0; i < rows.size(); ++i) {
        Value result = nullptr;
        if (key_.backward) {
          result = Gradient(x[i], y[i], rest);
        } else {
          Value const shifted = Sub(x[i], largest);
          result = key_.logarithm ? Sub(shifted, rest) : MulF(Exp(shifted), rest);
        }
        Store(at(0, rows[i]), result);
      }
      return Values{};
    });
  }

  // Runs body(rows, carried) for a strand's rows, several at a time and then one by one.
  Values EachRow(Value strand, Value end, int64_t strands, const Values& carried,
                 const std::function<Values(const Values&, const Values&)>& body) {
    return e_.LoopUnrolled(strand, end, strands, 1, 8, carried, body);
  }

  template <typename At>
  Value BackwardTerms(const At& at, Value strand, int64_t strands) {
    return EachRow(strand, args_.n, strands, {e_.Constant(type_, 0)},
                   [&](const Values& rows, const Values& sum) {
                     Value total = sum[0];
                     for (Value d : rows) {
                       Value const g = Load(1, at(1, d));
                       total = e_.ir().CreateFAdd(total, key_.logarithm ? g : MulF(g, Load(2, at(2, d))));
                     }
                     return Values{total};
                   })[0];
  }

  // The reference for exponents: the maximum, or 0 while everything is -inf.
  Value Reference(Value largest) {
    Value const none = e_.ir().CreateFCmpOEQ(largest, e_.Constant(type_, -INFINITY));
    return e_.ir().CreateSelect(none, e_.Constant(type_, 0), largest);
  }

  template <typename At>
  Values ForwardState(const At& at, Value strand, int64_t strands) {
    const Values initial = {e_.Constant(type_, -INFINITY), e_.Constant(type_, 0)};
    return EachRow(strand, args_.n, strands, initial, [&](const Values& rows, const Values& state) {
      Values x;
      for (Value d : rows) x.push_back(Load(1, at(1, d)));
      Value largest = state[0];
      for (Value v : x) largest = rows_.Maximum(largest, v);
      Value const reference = Reference(largest);
      Value sum = MulF(state[1], Exp(Sub(state[0], reference)));
      for (Value v : x) sum = e_.ir().CreateFAdd(sum, Exp(Sub(v, reference)));
      return Values{largest, sum};
    });
  }

  Values MergeTwo(const Values& x, const Values& y) {
    if (x.size() == 1) return {e_.ir().CreateFAdd(x[0], y[0])};
    Value const largest = rows_.Maximum(x[0], y[0]), reference = Reference(largest);
    return {largest,
            e_.ir().CreateFAdd(MulF(x[1], Exp(Sub(x[0], reference))), MulF(y[1], Exp(Sub(y[0], reference))))};
  }

  // Merges the strands' states of a column. All lanes of the column get the result.
  Values MergeStrands(const Values& state, int64_t lanes, int64_t strands) {
    Values shared;
    const auto exchange = [&](Value at) {
      Values loaded;
      for (size_t c = 0; c < state.size(); ++c)
        loaded.push_back(e_.LoadRaw(state[c]->getType(), shared[c], at));
      return loaded;
    };
    for (Value v : state) {
      shared.push_back(e_.Shared(v->getType(), kGpuLanes));
      e_.StoreRaw(shared.back(), e_.Lane(), v);
    }
    for (int64_t half = strands / 2; half > 0; half /= 2) {
      e_.Barrier();
      e_.If(e_.ir().CreateICmpSLT(e_.Lane(), e_.I64(half * lanes)), [&] {
        const Values merged =
            MergeTwo(exchange(e_.Lane()), exchange(e_.Add(e_.Lane(), e_.I64(half * lanes))));
        for (size_t c = 0; c < merged.size(); ++c) e_.StoreRaw(shared[c], e_.Lane(), merged[c]);
      });
    }
    e_.Barrier();
    return exchange(e_.ir().CreateAnd(e_.Lane(), e_.I64(lanes - 1)));
  }

  const SoftmaxKey& key_;
  const SoftmaxArguments<Emitted>& args_;
  Emitter& e_;
  RowEmission rows_;
  const Scalar type_;
  const size_t operands_ = static_cast<size_t>(key_.operands());
};

}  // namespace

std::string SoftmaxSkeleton::Name(const SoftmaxKey& key) const {
  return absl::StrCat(key.logarithm ? "log_softmax" : "softmax", key.backward ? "_backward" : "",
                      key.columns ? "_columns" : "_rows");
}

absl::Status SoftmaxSkeleton::EmitBody(const SoftmaxKey& key, const SoftmaxArguments<Emitted>& arguments,
                                       Emitter& e) const {
  SoftmaxEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

constinit const PlannerFactory kSoftmaxPlanner = MakePlanner<SoftmaxPlanner>;
constinit const PlannerFactory kSoftmaxBackwardPlanner = MakePlanner<SoftmaxPlanner>;

}  // namespace xpud::kernels
