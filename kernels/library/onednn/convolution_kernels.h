// The HOST kernels of convolutions by oneDNN: the library's thread plans their launches, and the device's
// workers run them.
#pragma once

#include "kernels/api/kernel_store.h"
#include "kernels/library/onednn/convolution_plan.h"

namespace xpud::kernels::onednn {

class ConvolutionKernels {
 public:
  // `sibling`: any kernel of the module.
  ConvolutionKernels(KernelStore& store, const Kernel& sibling);

  // Problems are sent by value; the process that runs them keeps their plans.
  void LaunchParts(const ConvolutionProblem& problem, const ConvolutionPlan& plan,
                   const ConvolutionOperands& operands, uint32_t parts_per_group, LaunchList& launches) const;
  // Adds the parts' gradients to the first one, if there are several.
  void LaunchSum(const ConvolutionProblem& problem, const ConvolutionPlan& plan, void* weights,
                 LaunchList& launches) const;
  void LaunchPack(const ConvolutionProblem& problem, const WeightView& from, void* to,
                  LaunchList& launches) const;
  void LaunchUnpack(const ConvolutionProblem& problem, void* from, const WeightView& to,
                    LaunchList& launches) const;

 private:
  const Kernel* parts_;
  const Kernel* sum_;
  const Kernel* pack_;
  const Kernel* unpack_;
};

// The entries in the module's table.
inline constexpr const char* kConvolutionEntries[] = {"convolution", "convolution_sum", "convolution_pack",
                                                      "convolution_unpack"};
void RunConvolution(const void* const* args, const uint32_t group[3], void* scratch);
void RunConvolutionSum(const void* const* args, const uint32_t group[3], void* scratch);
void RunConvolutionPack(const void* const* args, const uint32_t group[3], void* scratch);
void RunConvolutionUnpack(const void* const* args, const uint32_t group[3], void* scratch);
inline constexpr uint32_t kConvolutionSizes[] = {sizeof(ConvolutionProblem), sizeof(ConvolutionOperands),
                                                 sizeof(uint32_t)};
inline constexpr uint32_t kConvolutionSumSizes[] = {sizeof(ConvolutionProblem), sizeof(void*)};
inline constexpr uint32_t kConvolutionPackSizes[] = {sizeof(ConvolutionProblem), sizeof(WeightView),
                                                     sizeof(void*)};

}  // namespace xpud::kernels::onednn
