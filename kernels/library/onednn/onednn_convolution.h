// The planner of convolutions and their gradients on the host. The library's thread only.
#pragma once

#include "kernels/api/kernel_store.h"
#include "kernels/api/planner.h"
#include "kernels/library/onednn/convolution_kernels.h"

namespace xpud::kernels::onednn {

class OnednnConvolution : public Planner {
 public:
  // `maps` plans copies and sums; `own` plans what oneDNN has no fast implementation for. Both outlive this
  // object.
  OnednnConvolution(KernelStore& store, Planner& maps, Planner& own, int workers);

  bool Serves(ops::Family family) const override;
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  // One call's way through the planner.
  class Way;

  Planner& maps_;
  Planner& own_;
  const ConvolutionKernels kernels_;
  const int workers_;
};

}  // namespace xpud::kernels::onednn
