// Connectionist temporal classification. The states of a sequence are its labels with blanks around them.
//
// Forward, a group takes a sequence and goes through its steps; alpha[t, s] is the logarithm of the
// probability of all ways to be in state s after step t. Its lanes share the states of a step. Backward, a
// first kernel computes beta in the same way from the last step back, into the workspace. In a second one a
// lane takes a step of a sequence: it adds alpha + beta to the class of each state in order, so the result
// needs no atomics.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"

namespace xpud::kernels {

struct CtcKey {
  ops::DType type = ops::DType::kFloat32;
  ops::DType target = ops::DType::kInt64;
  bool beta = false;  // from the last step back

  void Visit(auto& visit) {
    visit(type, 4);
    visit(target, 4);
    visit(beta, 1);
  }
};

// What describes the sequences.
template <typename Side>
struct CtcSequences {
  typename Side::Pointer probs, targets, shapes;
  typename Side::Integer steps, batch, classes, states, labels, blank;

  void Visit(auto& visit) { visit(probs, targets, shapes, steps, batch, classes, states, labels, blank); }
};

template <typename Side>
struct CtcStatesArguments {
  CtcSequences<Side> sequences;
  typename Side::Pointer out, loss;  // out: alpha or beta; loss: null for beta

  void Visit(const CtcKey&, auto& visit) {
    sequences.Visit(visit);
    visit(out, loss);
  }
};

template <typename Side>
struct CtcGradientArguments {
  CtcSequences<Side> sequences;
  typename Side::Pointer out, gradient, loss, alpha, beta;
  typename Side::Integer zero_infinity, slice;  // slice: of steps of all sequences

  void Visit(const CtcKey&, auto& visit) {
    sequences.Visit(visit);
    visit(out, gradient, loss, alpha, beta, zero_infinity, slice);
  }
};

// Group x counts sequences.
class CtcStatesSkeleton : public SkeletonOf<CtcKey, ops::Family::kCtcLoss, CtcStatesArguments> {
 public:
  std::string Name(const CtcKey& key) const override { return key.beta ? "ctc_beta" : "ctc_alpha"; }
  absl::Status EmitBody(const CtcKey& key, const CtcStatesArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// Group x counts slices of steps.
class CtcGradientSkeleton : public SkeletonOf<CtcKey, ops::Family::kCtcLossBackward, CtcGradientArguments> {
 public:
  std::string Name(const CtcKey&) const override { return "ctc_gradient"; }
  absl::Status EmitBody(const CtcKey& key, const CtcGradientArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// The library's thread only.
class CtcPlanner : public Planner {
 public:
  explicit CtcPlanner(KernelCache& cache) : cache_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  absl::StatusOr<Readiness> PlanForward(const OpCall& call, LaunchList& launches);
  absl::StatusOr<Readiness> PlanBackward(const OpCall& call, Workspace workspace, LaunchList& launches);
  void AddStates(const CtcKey& key, const Kernel* kernel, const CtcSequences<Planned>& sequences, void* out,
                 void* loss, LaunchList& launches) const;

  KernelCache& cache_;
  const CtcStatesSkeleton states_;
  const CtcGradientSkeleton gradient_;
};

}  // namespace xpud::kernels
