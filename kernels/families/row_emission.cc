#include "kernels/families/row_emission.h"

#include <cmath>

namespace xpud::kernels {
namespace {

constexpr int64_t kSumBlock = 4096;  // elements
constexpr int64_t kLaneBlock = 64;   // of a lane of a GPU
constexpr int64_t kInFlight = 8;     // whose loads a lane of a GPU begins before it needs the first

}  // namespace

using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;

void RowEmission::ForEach(Value begin, Value end, const std::function<void(Value)>& body) {
  e_.Loop(e_.Add(begin, e_.Lane()), end, e_.Lanes(), body, Emitter::LoopKind::kParallel);
}

void RowEmission::Transform(Value begin, Value end, const std::function<Value(Value)>& value,
                            const std::function<void(Value, Value)>& store) {
  if (!e_.gpu()) return ForEach(begin, end, [&](Value j) { store(j, value(j)); });
  Unrolled(begin, end, {}, [&](const Values& places, const Values&) {
    Values values;
    for (Value const j : places) values.push_back(value(j));
    for (size_t i = 0; i < places.size(); ++i) store(places[i], values[i]);
    return Values{};
  });
}

Values RowEmission::Unrolled(Value begin, Value end, const Values& carried,
                             const std::function<Values(const Values&, const Values&)>& body) {
  const auto lanes = llvm::cast<llvm::ConstantInt>(e_.Lanes())->getSExtValue();
  return e_.LoopUnrolled(e_.Add(begin, e_.Lane()), end, lanes, 1, kInFlight, carried, body);
}

// Returns the values, folded in pairs.
Value RowEmission::InPairs(Values values, const std::function<Value(Value, Value)>& combine) {
  for (; values.size() > 1; values.resize((values.size() + 1) / 2)) {
    const size_t half = (values.size() + 1) / 2;
    for (size_t i = 0; i + half < values.size(); ++i) values[i] = combine(values[i], values[i + half]);
  }
  return values[0];
}

Value RowEmission::AddFreely(Value x, Value y) {
  Value const sum = e_.ir().CreateFAdd(x, y);
  if (auto* const add = llvm::dyn_cast<llvm::Instruction>(sum)) {
    llvm::FastMathFlags flags;
    flags.setAllowReassoc(true);
    flags.setAllowContract(true);
    flags.setNoSignedZeros(true);
    add->copyFastMathFlags(flags);
  }
  return sum;
}

Value RowEmission::Maximum(Value x, Value y) {
  llvm::Value* const call = e_.ir().CreateBinaryIntrinsic(llvm::Intrinsic::maximum, x, y);
  llvm::FastMathFlags flags;
  flags.setNoSignedZeros(true);
  if (auto* const instruction = llvm::dyn_cast<llvm::Instruction>(call))
    instruction->copyFastMathFlags(flags);
  return call;
}

Value RowEmission::Combine(Value value, const std::function<Value(Value, Value)>& combine, bool once) {
  if (!e_.gpu()) return value;
  const auto merge = [&](const Values& x, const Values& y) { return Values{combine(x[0], y[0])}; };
  return e_.MergeLanes({value}, merge, once)[0];
}

void RowEmission::HoldRows(Value n, const RowPlan& plan) {
  block_ = plan.block;
  Value const last = e_.ir().CreateSub(n, e_.I64(block_));
  for (int64_t c = 0; c < plan.blocks; ++c) {
    Value const number = e_.Add(e_.Lane(), e_.Mul(e_.I64(c), e_.Lanes()));
    Value const at = e_.Mul(number, e_.I64(block_));
    // A block beyond the end loads the last one again. This avoids a branch, and all loads are in flight at
    // once.
    at_.push_back(e_.Min(at, last));
    inside_.push_back(e_.ir().CreateICmpSLT(at, n));
  }
}

Values RowEmission::LoadBlockHeld(size_t c, ops::DType type, Value base, Value offset, Scalar as) {
  return e_.LoadBlock(type, base, e_.Add(offset, at_[c]), as, block_);
}

Values RowEmission::LoadHeld(ops::DType type, Value base, Value offset, Scalar as) {
  Values values;
  for (size_t c = 0; c < at_.size(); ++c) {
    const Values block = LoadBlockHeld(c, type, base, offset, as);
    values.insert(values.end(), block.begin(), block.end());
  }
  return values;
}

void RowEmission::ForEachBlockHeld(const std::function<void(size_t, size_t)>& then) {
  for (size_t c = 0; c < at_.size(); ++c) e_.If(inside_[c], [&] { then(c, c * block()); });
}

void RowEmission::StoreBlockHeld(size_t c, ops::DType type, Value base, Value offset, const Values& values,
                                 Scalar from) {
  e_.StoreBlock(type, base, e_.Add(offset, at_[c]), values, from);
}

Value RowEmission::Fold(const Values& values, double identity,
                        const std::function<Value(Value, Value)>& combine) {
  llvm::Constant* const neutral = llvm::ConstantFP::get(values[0]->getType(), identity);
  Values left = values;
  for (size_t i = 0; i < left.size(); ++i)
    left[i] = e_.ir().CreateSelect(inside_[i / static_cast<size_t>(block_)], left[i], neutral);
  return InPairs(std::move(left), combine);
}

Value RowEmission::SumHeld(const Values& values) {
  const auto add = [&](Value x, Value y) { return AddFreely(x, y); };
  return Combine(Fold(values, 0, add), add, /*once=*/true);
}

Values RowEmission::SumsHeld(const std::vector<Values>& lists) {
  Values sums;
  for (const Values& list : lists)
    sums.push_back(Fold(list, 0, [&](Value x, Value y) { return AddFreely(x, y); }));
  return e_.MergeLanes(sums, [&](const Values& x, const Values& y) {
    Values both;
    for (size_t i = 0; i < x.size(); ++i) both.push_back(AddFreely(x[i], y[i]));
    return both;
  });
}

Value RowEmission::MaxHeld(const Values& values) {
  const auto larger = [&](Value x, Value y) { return Maximum(x, y); };
  return Combine(Fold(values, -INFINITY, larger), larger, /*once=*/true);
}

void RowEmission::StoreHeld(ops::DType type, Value base, Value offset, const Values& values, Scalar from) {
  ForEachBlockHeld([&](size_t c, size_t first) {
    const auto at = values.begin() + static_cast<ptrdiff_t>(first);
    StoreBlockHeld(c, type, base, offset, {at, at + block_}, from);
  });
}

Values RowEmission::Sum(Value begin, Value end, Scalar type, size_t count,
                        const std::function<Values(Value)>& body) {
  const Values zeros(count, e_.Constant(type, 0));
  const auto add = [&](const Values& x, const Values& y) {
    Values both;
    for (size_t i = 0; i < count; ++i) both.push_back(AddFreely(x[i], y[i]));
    return both;
  };
  const auto part = [&](Value from, Value to) {
    if (!e_.gpu()) {
      return e_.Loop(
          from, to, e_.I64(1), zeros, [&](Value j, const Values& current) { return add(current, body(j)); },
          Emitter::LoopKind::kParallel);
    }
    return Unrolled(from, to, zeros, [&](const Values& places, const Values& current) {
      std::vector<Values> terms(count);
      for (Value const j : places) {
        const Values here = body(j);
        for (size_t i = 0; i < count; ++i) terms[i].push_back(here[i]);
      }
      Values sums;
      for (Values& each : terms)
        sums.push_back(InPairs(std::move(each), [&](Value x, Value y) { return AddFreely(x, y); }));
      return add(current, sums);
    });
  };
  // By blocks, because the lanes would add a long row with much rounding.
  Value const block = e_.gpu() ? e_.Mul(e_.Lanes(), e_.I64(kLaneBlock)) : e_.I64(kSumBlock);
  Values sums = e_.Loop(begin, end, block, zeros, [&](Value from, const Values& current) {
    Value const next = e_.Add(from, block);
    return add(current, part(from, e_.ir().CreateSelect(e_.ir().CreateICmpSLT(next, end), next, end)));
  });
  for (Value& sum : sums) sum = Combine(sum, [&](Value x, Value y) { return AddFreely(x, y); });
  return sums;
}

Value RowEmission::Max(Value begin, Value end, Scalar type, const std::function<Value(Value)>& body) {
  const auto larger = [&](Value x, Value y) { return Maximum(x, y); };
  const Values least = {e_.Constant(type, -INFINITY)};
  if (!e_.gpu()) {
    return e_.Loop(
        begin, end, e_.I64(1), least,
        [&](Value j, const Values& current) { return Values{larger(current[0], body(j))}; },
        Emitter::LoopKind::kParallel)[0];
  }
  const Values largest = Unrolled(begin, end, least, [&](const Values& places, const Values& current) {
    Values values;
    for (Value const j : places) values.push_back(body(j));
    return Values{larger(current[0], InPairs(std::move(values), larger))};
  });
  return Combine(largest[0], larger);
}

Value RowEmission::Math(const char* name, Value x, Scalar type) {
  return e_.CallMath(std::string(name) + (type == Scalar::kF64 ? "_f64" : "_f32"), x->getType(), {&x, 1});
}

llvm::Value* SumOverGroup(Emitter& e, llvm::Value* value) {
  if (!e.gpu()) return value;
  return e.MergeLanes({value}, [&](const Emitter::Values& x, const Emitter::Values& y) {
    return Emitter::Values{e.ir().CreateFAdd(x[0], y[0])};
  })[0];
}

}  // namespace xpud::kernels
