// The negative log likelihood of a target class in each row, and its gradient. Targets equal to `ignore` are
// skipped. If rows are positions of images, the gradient is computed plane by plane of a class. Targets out
// of range are reported and skipped. Sums are cut into parts of kNllPart rows on every device, and the parts
// are added in order.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"

namespace xpud::kernels {

inline constexpr int64_t kNllPart = 4096;  // rows

enum class NllStage : uint8_t {
  kEach,     // a loss for each row; the total weight is 0, as in ATen
  kSum,      // one group: the reduced loss and the total weight
  kPart,     // stores a group's loss and weight to the workspace
  kWeights,  // like kPart without the loss; does not read the input
  kMerge,    // adds up the parts: the reduced loss and the total weight
};

struct NllKey {
  NllStage stage = NllStage::kEach;         // forward
  ops::DType input = ops::DType::kFloat32;  // of input, loss and class weights
  ops::DType target = ops::DType::kInt64;
  ops::DType other = ops::DType::kFloat32;  // forward: of the total weight; backward: of the input's gradient
  bool weighted = false;                    // by class
  bool mean = false;
  bool each = false;        // backward: the loss's gradient has one element for each row
  bool contiguous = false;  // backward: rows (or planes) of the input's gradient are contiguous
  bool planes = false;      // rows are positions of images [N, C, P]

  // The type of the states in the workspace, which are pairs (loss, weight).
  Scalar accumulate() const { return AccumulateOf(input); }

  void Visit(auto& visit) {
    visit(stage, 3);
    for (ops::DType* const type : {&input, &target, &other}) visit(*type, 4);
    for (bool* const flag : {&weighted, &mean, &each, &contiguous, &planes}) visit(*flag, 1);
  }
};

// Pointers that a stage does not use are null.
template <typename Side>
struct NllForwardArguments {
  typename Side::Pointer loss, total;  // loss: unused by kPart and kWeights, which store their states instead
  // kMerge:
  typename Side::Pointer states;
  typename Side::Integer parts;
  // The other stages:
  typename Side::Pointer input, target, weights, error_word;
  typename Side::Integer rows, classes, ignore, slice;
  typename Side::Integer input_row_stride, input_class_stride, target_stride, weight_stride, loss_stride;
  // Planes; the strides above are along positions:
  typename Side::Integer positions, input_image_stride, target_image_stride, loss_image_stride;

  void Visit(const NllKey& key, auto& visit) {
    visit(loss, total);
    if (key.stage == NllStage::kMerge) return visit(states, parts);
    visit(input, target, weights, error_word, rows, classes, ignore, slice);
    visit(input_row_stride, input_class_stride, target_stride, weight_stride, loss_stride);
    if (key.planes) visit(positions, input_image_stride, target_image_stride, loss_image_stride);
  }
};

template <typename Side>
struct NllBackwardArguments {
  typename Side::Pointer dx, gradient, target, weights, states, error_word;  // states: for a mean
  typename Side::Integer rows, classes, ignore, slice, parts;
  typename Side::Integer dx_row_stride, dx_class_stride, gradient_stride, target_stride, weight_stride;
  // Planes; the strides above are along positions:
  typename Side::Integer positions, dx_image_stride, gradient_image_stride, target_image_stride;

  void Visit(const NllKey& key, auto& visit) {
    visit(dx, gradient, target, weights, states, error_word, rows, classes, ignore, slice, parts);
    visit(dx_row_stride, dx_class_stride, gradient_stride, target_stride, weight_stride);
    if (key.planes) visit(positions, dx_image_stride, gradient_image_stride, target_image_stride);
  }
};

// Group x counts slices of rows.
class NllForwardSkeleton : public SkeletonOf<NllKey, ops::Family::kNllLoss, NllForwardArguments> {
 public:
  std::string Name(const NllKey&) const override { return "nll_loss_forward"; }
  absl::Status EmitBody(const NllKey& key, const NllForwardArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// Group x counts slices of rows, or of planes; on a GPU, of elements.
class NllBackwardSkeleton : public SkeletonOf<NllKey, ops::Family::kNllLossBackward, NllBackwardArguments> {
 public:
  std::string Name(const NllKey&) const override { return "nll_loss_backward"; }
  absl::Status EmitBody(const NllKey& key, const NllBackwardArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// Plans the negative log likelihood loss and its gradient. The library's thread only.
class NllPlanner : public Planner {
 public:
  explicit NllPlanner(KernelCache& cache) : cache_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  absl::StatusOr<Readiness> PlanForward(const OpCall& call, Workspace workspace, LaunchList& launches);
  absl::StatusOr<Readiness> PlanBackward(const OpCall& call, Workspace workspace, LaunchList& launches);

  KernelCache& cache_;
  const NllForwardSkeleton forward_;
  const NllBackwardSkeleton backward_;
};

}  // namespace xpud::kernels
