// Emits the parts of a reduction formula as IR, at any vector width. Used once, on one thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/compiler/formulas.h"
#include "kernels/compiler/lowering.h"

namespace xpud::kernels {

class MonoidEmission {
 public:
  using Value = llvm::Value*;
  using State = std::vector<llvm::Value*>;

  MonoidEmission(Emitter& emitter, const ReduceFormula& formula, Scalar accumulate)
      : e_(emitter), formula_(formula), accumulate_(accumulate) {}

  // Sets the attribute b and the count n, as scalars.
  void Bind(Value attribute, Value count) { attribute_ = attribute, count_ = count; }

  size_t components() const { return formula_.state.size(); }
  Scalar TypeOf(size_t component) const {
    return formula_.state[component].position ? Scalar::kI64 : accumulate_;
  }

  State Init(int width);
  // `elements`: of a, and of b, c ... if the reduction has several inputs.
  State Step(const State& state, std::span<const Value> elements, Value position, int width);
  State Step(const State& state, Value element, Value position, int width) {
    return Step(state, {&element, 1}, position, width);
  }
  State Merge(const State& first, const State& second, int width);
  std::vector<Typed> Finish(const State& state, int width);
  // Merges the lanes of a vector state pairwise into a scalar state.
  State MergeLanes(State state, int width);
  // GPU: merges the states of all lanes of a team; all lanes get the result.
  State MergeGroup(const State& state, bool once = false);

  // Returns the first error of the functions above.
  const absl::Status& status() const { return status_; }

 private:
  using Flags = std::unique_ptr<llvm::IRBuilderBase::FastMathFlagGuard>;
  Flags DivideFreely() const;
  Value Splat(Value scalar, int width) {
    return width == 1 ? scalar : e_.ir().CreateVectorSplat(static_cast<unsigned>(width), scalar);
  }
  Lowering::Bindings Common(const State& state, int width);
  Value LowerComponent(Lowering& lowering, NodeId id, size_t component, int width);

  Emitter& e_;
  const ReduceFormula& formula_;
  const Scalar accumulate_;
  Value attribute_ = nullptr;
  Value count_ = nullptr;
  absl::Status status_;
};

}  // namespace xpud::kernels
