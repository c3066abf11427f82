// Layer normalisation over the last dimension, and RMS norm, whose mean is 0; all tensors are dense. A host
// group is a slice of rows. On a GPU, a group takes a row, or each of its warps does.
#pragma once

#include <array>

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/row_plan.h"

namespace xpud::kernels {

struct LayerNormKey {
  enum Operand { kY, kMean, kRstd, kX, kWeight, kBias };

  std::array<ops::DType, 6> dtypes{};
  std::array<bool, 6> present{};  // weight and bias may be absent; RMS norm has neither mean nor bias
  RowPlan rows = {};              // GPU

  Scalar accumulate() const { return AccumulateOf(dtypes[kX]); }
  bool centred() const { return present[kMean]; }

  void Visit(auto& visit) {
    for (size_t o = 0; o < dtypes.size(); ++o) {
      visit(dtypes[o], 4);
      visit(present[o], 1);
    }
    rows.Visit(visit);
  }
};

template <typename Side>
struct LayerNormArguments {
  std::array<typename Side::Pointer, 6> operands;  // by LayerNormKey::Operand
  typename Side::Integer n, rows, slice;           // n: elements of a row; slice: rows of a group
  typename Side::Immediate eps;

  void Visit(const LayerNormKey& key, auto& visit) {
    for (size_t o = 0; o < operands.size(); ++o) {
      if (key.present[o]) visit(operands[o]);
    }
    visit(n, rows, slice);
    visit.Immediate(eps, key.accumulate());
  }
};

class LayerNormSkeleton : public SkeletonOf<LayerNormKey, ops::Family::kLayerNorm, LayerNormArguments> {
 public:
  std::string Name(const LayerNormKey& key) const override {
    return key.centred() ? "layer_norm" : "rms_norm";
  }
  absl::Status EmitBody(const LayerNormKey& key, const LayerNormArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// Plans layer normalisation. The library's thread only.
class LayerNormPlanner : public Planner {
 public:
  explicit LayerNormPlanner(KernelCache& cache) : cache_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  KernelCache& cache_;
  const LayerNormSkeleton skeleton_;
};

}  // namespace xpud::kernels
