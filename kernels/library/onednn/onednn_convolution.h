// The planner of convolutions and their gradients on the host. The library's thread only.
#pragma once

#include <memory>

#include "kernels/api/kernel_store.h"
#include "kernels/api/planner.h"
#include "kernels/library/convolution/depthwise.h"
#include "kernels/library/onednn/convolution_kernels.h"

namespace xpud::kernels::onednn {

class OnednnConvolution : public Planner {
 public:
  // `maps` plans copies and sums; `own` plans what oneDNN has no fast implementation for. Both outlive this
  // object. `elsewhere` as in KernelLibrary::Options: no packed weights are kept.
  OnednnConvolution(KernelStore& store, Planner& maps, Planner& own, int workers, bool elsewhere);

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  // One call's way through the planner.
  class Way;

  // Without weights in the answer, they are packed for this call.
  PackedWeightCache::Found FindPacked(const LaidConvolution& laid,
                                      const std::shared_ptr<const ConvolutionPlan>& plan,
                                      const Operand& weight);

  Planner& maps_;
  Planner& own_;
  const ConvolutionKernels kernels_;
  const convolution::Depthwise depthwise_;
  const int workers_;
  const bool elsewhere_;
  PackedWeightCache packed_;
};

}  // namespace xpud::kernels::onednn
