// The negative log likelihood of a target class in each row, and its gradient. Targets equal to `ignore`
// count for nothing; one out of range is reported and counts for nothing. Sums are cut into parts of kNllPart
// rows whatever the device, and the parts are added in order.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"

namespace xpud::kernels {

inline constexpr int64_t kNllPart = 4096;  // rows

enum class NllStage : uint8_t {
  kEach,     // a loss for each row; the total weight is 0, as ATen's
  kSum,      // one group: the reduced loss and the total weight
  kPart,     // a group's rows: its loss and weight to the workspace
  kWeights,  // as kPart, without the loss: input is not read
  kMerge,    // the parts' sums: the reduced loss and the total weight
};

struct NllKey {
  NllStage stage = NllStage::kEach;         // forward
  ops::DType input = ops::DType::kFloat32;  // of input, loss and class weights
  ops::DType target = ops::DType::kInt64;
  ops::DType other = ops::DType::kFloat32;  // forward: of the total weight; backward: of the input's gradient
  bool weighted = false;                    // by class
  bool mean = false;
  bool each = false;        // backward: the loss's gradient has an element for each row
  bool contiguous = false;  // backward: rows of the input's gradient are

  KernelKey Pack(bool backward) const;
  static NllKey Unpack(const KernelKey& key);
  // States in the workspace are pairs (loss, weight) of this type.
  Scalar accumulate() const { return AccumulateOf(input); }
};

// Arguments: loss (kPart, kWeights: the workspace), total weight, input, target, class weights, error word |
// rows, classes, ignore, slice | strides: input's two, target's, class weights', loss's. kMerge: loss, total
// weight, workspace | parts. Pointers that a stage does not use are null. Group x counts slices of rows.
class NllForwardSkeleton : public Skeleton {
 public:
  std::string NameOf(const KernelKey& key) const override;
  std::string Describe(const KernelKey& key) const override;
  absl::Status Emit(const KernelKey& key, const std::string& name, Emitter& emitter) const override;
};

// Arguments: input's gradient, loss's gradient, target, class weights, workspace (for a mean), error word |
// rows, classes, ignore, slice, parts | strides: input's gradient's two, loss's gradient's, target's, class
// weights'. Group x counts slices of rows; on a GPU of elements.
class NllBackwardSkeleton : public Skeleton {
 public:
  std::string NameOf(const KernelKey& key) const override;
  std::string Describe(const KernelKey& key) const override;
  absl::Status Emit(const KernelKey& key, const std::string& name, Emitter& emitter) const override;
};

// Plans the negative log likelihood loss and its gradient. Engine thread only.
class NllPlanner : public Planner {
 public:
  explicit NllPlanner(KernelCache& cache) : cache_(cache) {}

  bool Serves(ops::Family family) const override {
    return family == ops::Family::kNllLoss || family == ops::Family::kNllLossBackward;
  }
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  absl::StatusOr<Readiness> PlanForward(const OpCall& call, Workspace workspace, LaunchList& launches);
  absl::StatusOr<Readiness> PlanBackward(const OpCall& call, Workspace workspace, LaunchList& launches);

  KernelCache& cache_;
  const NllForwardSkeleton forward_;
  const NllBackwardSkeleton backward_;
};

}  // namespace xpud::kernels
