// Forward attention on an NVIDIA GPU: which kernel of gpu/attention_*.cu computes a problem, and its
// launches. The library's thread only.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/library/attention/gpu_attention_arguments.h"
#include "kernels/library/attention/gpu_attention_modules.h"

namespace xpud::kernels::attention {

class GpuAttentionForward {
 public:
  // `modules` outlives this.
  GpuAttentionForward(GpuAttentionModules& modules, Gpu gpu) : modules_(modules), gpu_(gpu) {}

  // REQUIRES: the problem has rows of out, at most 2^31 in all.
  absl::StatusOr<Readiness> Plan(const AttentionProblem& p, Workspace workspace, LaunchList& launches);

 private:
  // A kernel that can cut keys.
  struct Tiles;

  absl::StatusOr<Readiness> LaunchDropout(const AttentionProblem& p, AttentionArguments& arguments,
                                          LaunchList& launches);
  absl::StatusOr<Readiness> LaunchOne(const AttentionProblem& p, AttentionArguments& arguments,
                                      Workspace workspace, LaunchList& launches);
  absl::StatusOr<Readiness> LaunchTensorCores(const AttentionProblem& p, AttentionArguments& arguments,
                                              Workspace workspace, LaunchList& launches);
  absl::StatusOr<Readiness> LaunchMma(const AttentionProblem& p, AttentionArguments& arguments,
                                      Workspace workspace, LaunchList& launches);
  // `kernel` is nullptr if it is not ready.
  absl::StatusOr<Readiness> LaunchTeams(const Kernel* kernel, const AttentionProblem& p,
                                        AttentionArguments& arguments, Workspace workspace,
                                        LaunchList& launches) const;
  absl::StatusOr<Readiness> LaunchTiled(const AttentionProblem& p, AttentionArguments& arguments,
                                        Workspace workspace, LaunchList& launches);
  absl::StatusOr<Readiness> LaunchPlain(const AttentionProblem& p, AttentionArguments& arguments,
                                        LaunchList& launches);
  absl::StatusOr<Readiness> LaunchCut(const Tiles& tiles, const AttentionProblem& p,
                                      AttentionArguments& arguments, Workspace workspace,
                                      LaunchList& launches);

  GpuAttentionModules& modules_;
  const Gpu gpu_;
};

}  // namespace xpud::kernels::attention
