// The gradients of layer norm. With h = (x - mean) * rstd and g = grad * weight, each row has
//   dx = rstd * (g - mean of g - h * mean of (g * h));  dweight = sum over rows of grad * h;  dbias = sum
//   over rows of grad.
// RMS norm has neither the mean, nor the mean of g, nor dbias.
// A group (or warp) takes a part of the rows and leaves its sums for dweight and dbias in the workspace,
// [part][2][columns]; a second kernel adds the parts in order. The parts follow from the sizes, so a result
// never depends on the number of workers.
#pragma once

#include <array>

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/row_plan.h"

namespace xpud::kernels {

struct LayerNormBackwardKey {
  enum Operand { kDx, kDweight, kDbias, kGrad, kX, kMean, kRstd, kWeight };

  std::array<ops::DType, 8> types{};
  bool weighted = false;
  bool centred = true;  // false: RMS norm
  // NVPTX: if rows are held, a lane keeps its columns' sums in registers, and a warp may be a team. Unused by
  // the merge.
  RowPlan rows = {};

  // The type of sums and of the workspace.
  Scalar accumulate() const {
    const bool wide = types[kX] == ops::DType::kFloat64 || types[kGrad] == ops::DType::kFloat64;
    return wide ? Scalar::kF64 : Scalar::kF32;
  }

  void Visit(auto& visit) {
    for (ops::DType& type : types) visit(type, 4);
    visit(weighted, 1);
    visit(centred, 1);
    rows.Visit(visit);
  }
};

template <typename Side>
struct LayerNormBackwardArguments {
  using Key = LayerNormBackwardKey;
  typename Side::Pointer dx, sums;
  std::array<typename Side::Pointer, 5> inputs;  // by Key::Operand, from kGrad on; absent ones are null
  typename Side::Integer rows, columns, part;    // part: rows of a part

  const auto& Input(Key::Operand operand) const { return inputs[static_cast<size_t>(operand - Key::kGrad)]; }

  void Visit(const Key&, auto& visit) {
    visit(dx, sums);
    visit.First(inputs, 5);
    visit(rows, columns, part);
  }
};

template <typename Side>
struct LayerNormMergeArguments {
  typename Side::Pointer dweight, dbias, sums;   // dbias: null for RMS norm
  typename Side::Integer columns, parts, slice;  // slice: columns of a group

  void Visit(const LayerNormBackwardKey&, auto& visit) { visit(dweight, dbias, sums, columns, parts, slice); }
};

// Group x counts parts.
class LayerNormBackwardSkeleton
    : public SkeletonOf<LayerNormBackwardKey, ops::Family::kLayerNormBackward, LayerNormBackwardArguments> {
 public:
  std::string Name(const LayerNormBackwardKey&) const override { return "layer_norm_backward"; }
  absl::Status EmitBody(const LayerNormBackwardKey& key, const LayerNormBackwardArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// Group x counts slices of columns.
class LayerNormMergeSkeleton
    : public SkeletonOf<LayerNormBackwardKey, ops::Family::kLayerNormBackward, LayerNormMergeArguments, 1> {
 public:
  std::string Name(const LayerNormBackwardKey&) const override { return "layer_norm_merge"; }
  absl::Status EmitBody(const LayerNormBackwardKey& key, const LayerNormMergeArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// Plans the gradients of layer norm. The library's thread only.
class LayerNormBackwardPlanner : public Planner {
 public:
  explicit LayerNormBackwardPlanner(KernelCache& cache) : cache_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  KernelCache& cache_;
  const LayerNormBackwardSkeleton rows_;
  const LayerNormMergeSkeleton merge_;
};

}  // namespace xpud::kernels
