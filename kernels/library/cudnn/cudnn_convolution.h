// The planner of convolutions and their gradients on NVIDIA GPUs, by cuDNN. The library's thread only.
#pragma once

#include "kernels/api/kernel_store.h"
#include "kernels/api/planner.h"
#include "kernels/library/cudnn/cudnn_plan.h"
#include "kernels/library/workspace_table.h"

namespace xpud::kernels::cudnn {

class CudnnConvolution : public Planner {
 public:
  // `maps` plans copies and sums; `own` plans what cuDNN does not support, and everything if it is not
  // installed. Both outlive this object. `run` as in KernelLibrary::Options, not null.
  CudnnConvolution(KernelStore& store, Planner& maps, Planner& own, HostKernelRunner run);

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  using Workspaces = WorkspaceTable<Problem>;

  absl::StatusOr<Readiness> Launch(const ops::Convolution& c, const Problem& problem, uint64_t bytes,
                                   Workspace workspace, LaunchList& launches);

  Planner& maps_;
  Planner& own_;
  const Kernel* const convolve_;
  Workspaces workspaces_;
};

}  // namespace xpud::kernels::cudnn
