// Gradients of attention on an NVIDIA GPU: which kernels of gpu/attention_*gradient.cu compute a problem, and
// their launches. The library's thread only.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/library/attention/gpu_attention_arguments.h"
#include "kernels/library/attention/gpu_attention_modules.h"

namespace xpud::kernels::attention {

class GpuAttentionGradient {
 public:
  // `modules` outlives this.
  GpuAttentionGradient(GpuAttentionModules& modules, Gpu gpu) : modules_(modules), gpu_(gpu) {}

  // REQUIRES: the problem has heads, and at most 2^31 queries and keys in all.
  absl::StatusOr<Readiness> Plan(const AttentionGradientProblem& p, Workspace workspace,
                                 LaunchList& launches);

 private:
  absl::StatusOr<Readiness> LaunchMma(const AttentionGradientProblem& p,
                                      const AttentionGradientArguments& arguments, LaunchList& launches);
  absl::StatusOr<Readiness> LaunchTeams(PtxModule& module, const AttentionGradientProblem& p,
                                        AttentionGradientArguments& arguments, Workspace workspace,
                                        LaunchList& launches) const;
  absl::StatusOr<Readiness> LaunchPlain(const AttentionGradientProblem& p,
                                        const AttentionGradientArguments& arguments, LaunchList& launches);

  GpuAttentionModules& modules_;
  const Gpu gpu_;
};

}  // namespace xpud::kernels::attention
