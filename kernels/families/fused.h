// Steps of optimizers and unscaling of gradients, many tensors in a launch (pack.h).
//
// clang-format off
// With g the gradient (divided by grad_scale, negated to maximize), p the parameter, w weight_decay:
//   Adam     g += w p           or, decoupled,  p -= lr w p                         (Kingma and Ba 2015; Loshchilov and Hutter 2019)
//            m = b1 m + (1 - b1) g    v = b2 v + (1 - b2) g g    x = max(x, v)
//            p -= lr / (1 - b1^step) m / (sqrt(x or v) / sqrt(1 - b2^step) + eps)
//   SGD      g += w p    m = momentum m + (1 - dampening) g, or g in the first step    g = m, or g + momentum m    p -= lr g
//   Adagrad  g += w p    s += g g    p -= lr / (1 + (step - 1) lr_decay) g / (sqrt(s) + eps)    (Duchi et al. 2011)
// clang-format on
// Elements are computed in f32 (f64: in f64), what depends only on the step in f64. Nothing is written if
// found_inf is 1.
#pragma once

#include <array>
#include <vector>

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/pack.h"
#include "proto/ops/operand_lists.h"

namespace xpud::kernels {

inline constexpr size_t kFusedNumbers = 5;

struct FusedKey {
  const ops::Row* row = nullptr;
  ops::DType dtype = ops::DType::kFloat32;
  ops::DType lr = ops::DType::kFloat32;  // of the tensor
  bool lr_tensor = false, grad_scale = false, found_inf = false;
  bool state = false;  // Adam: x; SGD: momentum
  bool decay = false, maximize = false, nesterov = false, first = false;
  int block_log2 = 0;
  bool small = false;

  ops::Family family() const { return row->family; }
  bool has_steps() const { return family() != ops::Family::kFusedSgd && family() != ops::Family::kUnscale; }
  // The states that are updated beside the parameter.
  int states() const {
    if (family() == ops::Family::kUnscale) return 0;
    if (family() == ops::Family::kFusedSgd) return state ? 1 : 0;
    return family() == ops::Family::kFusedAdam ? (state ? 3 : 2) : 1;
  }
  // Addresses of a tensor: the parameter, its states, the gradient, the unscaled gradient, the step.
  int slots() const {
    if (family() == ops::Family::kUnscale) return 1;
    return 2 + states() + (grad_scale ? 1 : 0) + (has_steps() ? 1 : 0);
  }
  int numbers() const { return family() == ops::Family::kUnscale ? 0 : static_cast<int>(kFusedNumbers); }
  int scalars() const { return (lr_tensor ? 1 : 0) + (grad_scale ? 1 : 0) + (found_inf ? 1 : 0); }
  int capacity() const { return PackCapacity(slots(), numbers() + scalars(), small); }

  void Visit(auto& visit) {
    visit(row, kRowBits);
    visit(dtype, 4);
    visit(lr, 4);
    for (bool* const flag :
         {&lr_tensor, &grad_scale, &found_inf, &state, &decay, &maximize, &nesterov, &first, &small})
      visit(*flag, 1);
    visit(block_log2, 2);
  }
  bool operator==(const FusedKey&) const = default;
};

template <typename Side>
struct FusedArguments {
  PackArguments<Side> pack;
  typename Side::Pointer lr, grad_scale, found_inf;
  // Adam: lr, beta1, beta2, weight_decay, eps. SGD: lr, weight_decay, momentum, dampening. Adagrad: lr,
  // lr_decay, weight_decay, eps.
  std::array<typename Side::Immediate, kFusedNumbers> numbers;

  void Visit(const FusedKey& key, auto& visit) {
    pack.Visit(key.slots(), key.capacity(), visit);
    if (key.lr_tensor) visit(lr);
    if (key.grad_scale) visit(grad_scale);
    if (key.found_inf) visit(found_inf);
    for (size_t n = 0; n < static_cast<size_t>(key.numbers()); ++n) visit.Immediate(numbers[n], Scalar::kF64);
  }
};

class FusedSkeleton : public SkeletonOf<FusedKey, ops::Family::kFusedAdam, FusedArguments> {
 public:
  std::string Name(const FusedKey& key) const override { return NameWith("step_", *key.row); }
  absl::Status EmitBody(const FusedKey& key, const FusedArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// The library's thread only.
class FusedPlanner : public Planner {
 public:
  explicit FusedPlanner(KernelCache& cache) : cache_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  // The lists of a call by role; 0 for those that it lacks.
  struct Roles {
    std::array<size_t, kPackSlots> slots{};  // lists of the addresses, in their order
    size_t lr = 0, grad_scale = 0, found_inf = 0;
    std::array<ops::Number, kFusedNumbers> numbers{};  // see FusedArguments
  };

  static void SetAttributes(const OpCall& call, FusedKey& key, Roles& roles);
  static FusedKey KeyOf(const OpCall& call, const ops::OperandLists& lists, Roles& roles);
  void SetScalars(const ops::OperandLists& lists, const Roles& roles);
  // Adds element `index` to the pack.
  void Join(const ops::OperandLists& lists, const Roles& roles, size_t index);
  absl::Status Flush(LaunchList& launches);
  int BlockOf() const;

  KernelCache& cache_;
  const FusedSkeleton skeleton_;

  // Scratch of the call being planned.
  FusedKey key_;
  FusedArguments<Planned> arguments_;
  std::vector<Operand> written_, read_;  // of the element being added
  PackRanges ranges_;
  int tensors_ = 0;
  int64_t elements_ = 0, units_ = 0;
  uintptr_t addresses_ = 0;
  Readiness readiness_ = Readiness::kReady;
};

}  // namespace xpud::kernels
