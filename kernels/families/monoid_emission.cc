#include "kernels/families/monoid_emission.h"

#include <numeric>

namespace xpud::kernels {

Lowering::Bindings MonoidEmission::Common(const State& state, int width) {
  Lowering::Bindings bindings{};
  for (size_t c = 0; c < state.size(); ++c) {
    bindings[static_cast<size_t>(Variable::kP) + c] = {state[c], TypeOf(c)};
  }
  if (attribute_ != nullptr)
    bindings[static_cast<size_t>(Variable::kB)] = {Splat(attribute_, width), accumulate_};
  if (count_ != nullptr)
    bindings[static_cast<size_t>(Variable::kCount)] = {Splat(count_, width), Scalar::kI64};
  return bindings;
}

MonoidEmission::Value MonoidEmission::LowerComponent(Lowering& lowering, NodeId id, size_t component,
                                                     int width) {
  const absl::StatusOr<Value> value = lowering.LowerAs(id, TypeOf(component));
  if (value.ok()) return *value;
  if (status_.ok()) status_ = value.status();
  return llvm::UndefValue::get(e_.TypeOf(TypeOf(component), width));
}

MonoidEmission::State MonoidEmission::Init(int width) {
  const Lowering::Bindings bindings = Common({}, width);
  Lowering lowering(e_, formula_.expression, accumulate_, bindings, width);
  State state;
  for (size_t c = 0; c < components(); ++c)
    state.push_back(LowerComponent(lowering, formula_.state[c].init, c, width));
  return state;
}

// Divides with an error of 2 ulp on NVIDIA GPUs, where an exact quotient takes a dozen instructions: steps
// and merges divide only to weigh corrections. The caller keeps the result while it emits.
MonoidEmission::Flags MonoidEmission::DivideFreely() const {
  auto guard = std::make_unique<llvm::IRBuilderBase::FastMathFlagGuard>(e_.ir());
  llvm::FastMathFlags flags = e_.ir().getFastMathFlags();
  flags.setApproxFunc(e_.target() == Target::kNvptx);
  e_.ir().setFastMathFlags(flags);
  return guard;
}

MonoidEmission::State MonoidEmission::Step(const State& state, std::span<const Value> elements,
                                           Value position, int width) {
  const Flags flags = DivideFreely();
  Lowering::Bindings bindings = Common(state, width);
  for (size_t i = 0; i < elements.size(); ++i)
    bindings[static_cast<size_t>(Variable::kA) + i] = {elements[i], accumulate_};
  bindings[static_cast<size_t>(Variable::kPosition)] = {position, Scalar::kI64};
  Lowering lowering(e_, formula_.expression, accumulate_, bindings, width);
  State next;
  for (size_t c = 0; c < components(); ++c)
    next.push_back(LowerComponent(lowering, formula_.state[c].step, c, width));
  return next;
}

MonoidEmission::State MonoidEmission::Merge(const State& first, const State& second, int width) {
  const Flags flags = DivideFreely();
  Lowering::Bindings bindings = Common(first, width);
  for (size_t c = 0; c < components(); ++c) {
    bindings[static_cast<size_t>(Variable::kP2) + c] = {second[c], TypeOf(c)};
  }
  Lowering lowering(e_, formula_.expression, accumulate_, bindings, width);
  State merged;
  for (size_t c = 0; c < components(); ++c) {
    merged.push_back(LowerComponent(lowering, formula_.state[c].merge, c, width));
  }
  return merged;
}

std::vector<Typed> MonoidEmission::Finish(const State& state, int width) {
  const Lowering::Bindings bindings = Common(state, width);
  Lowering lowering(e_, formula_.expression, accumulate_, bindings, width);
  std::vector<Typed> results;
  for (const NodeId root : formula_.outputs) {
    const absl::StatusOr<Typed> result = lowering.Lower(root);
    if (!result.ok() && status_.ok()) status_ = result.status();
    results.push_back(result.ok() ? *result
                                  : Typed{llvm::UndefValue::get(e_.TypeOf(accumulate_, width)), accumulate_});
  }
  return results;
}

MonoidEmission::State MonoidEmission::MergeLanes(State state, int width) {
  while (width > 1) {
    const int half = width / 2;
    State low, high;
    for (Value v : state) {
      if (half == 1) {
        low.push_back(e_.ir().CreateExtractElement(v, uint64_t{0}));
        high.push_back(e_.ir().CreateExtractElement(v, uint64_t{1}));
        continue;
      }
      std::vector<int> mask(static_cast<size_t>(half));
      std::iota(mask.begin(), mask.end(), 0);
      low.push_back(e_.ir().CreateShuffleVector(v, mask));
      std::iota(mask.begin(), mask.end(), half);
      high.push_back(e_.ir().CreateShuffleVector(v, mask));
    }
    state = Merge(low, high, half);
    width = half;
  }
  return state;
}

MonoidEmission::State MonoidEmission::MergeGroup(const State& state, bool once) {
  return e_.MergeLanes(state, [&](const State& x, const State& y) { return Merge(x, y, 1); }, once);
}

}  // namespace xpud::kernels
