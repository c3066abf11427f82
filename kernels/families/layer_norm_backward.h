// The gradients of layer norm. With h = (x - mean) * rstd and g = grad * weight, each row has
//   dx = rstd * (g - mean of g - h * mean of (g * h));  dweight = sum over rows of grad * h;  dbias = sum
//   over rows of grad.
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
  RowPlan rows =
      {};  // NVPTX: where held, a lane keeps its columns' sums in registers, and a warp may be a team

  KernelKey Pack(bool merge) const;
  static LayerNormBackwardKey Unpack(const KernelKey& key);
  // Of sums, and of the workspace.
  Scalar accumulate() const;
};

// Arguments: dx, workspace, grad, x, mean, rstd, weight (null if absent) | rows, columns, rows of a part.
// Group x counts parts.
class LayerNormBackwardSkeleton : public Skeleton {
 public:
  std::string NameOf(const KernelKey& key) const override;
  std::string Describe(const KernelKey& key) const override;
  absl::Status Emit(const KernelKey& key, const std::string& name, Emitter& emitter) const override;
};

// Arguments: dweight, dbias, workspace | columns, parts, columns of a group. Group x counts slices of
// columns.
class LayerNormMergeSkeleton : public Skeleton {
 public:
  std::string NameOf(const KernelKey& key) const override;
  std::string Describe(const KernelKey& key) const override;
  absl::Status Emit(const KernelKey& key, const std::string& name, Emitter& emitter) const override;
};

// Plans the gradients of layer norm. Engine thread only.
class LayerNormBackwardPlanner : public Planner {
 public:
  explicit LayerNormBackwardPlanner(KernelCache& cache) : cache_(cache) {}

  bool Serves(ops::Family family) const override { return family == ops::Family::kLayerNormBackward; }
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  KernelCache& cache_;
  const LayerNormBackwardSkeleton rows_;
  const LayerNormMergeSkeleton merge_;
};

}  // namespace xpud::kernels
