// The HOST kernels of convolutions by oneDNN: the library's thread plans their launches, and the device's
// workers run them.
#pragma once

#include "kernels/api/kernel_store.h"
#include "kernels/library/onednn/convolution_plan.h"
#include "kernels/library/onednn/packed_convolution.h"

namespace xpud::kernels::onednn {

// Problems are sent by value; the process that runs them keeps their plans.
class ConvolutionKernels {
 public:
  // `sibling`: any kernel of the module.
  ConvolutionKernels(KernelStore& store, const Kernel& sibling);

  const Kernel& any() const { return *parts_; }  // of the module

  // If `packed` is not null, it has the weight, and operands.weight is not used.
  void LaunchParts(const LaidConvolution& laid, const ConvolutionPlan& plan,
                   const ConvolutionOperands& operands, PackedConvolution* packed, uint32_t parts_per_group,
                   LaunchList& launches) const;
  // Adds the sums of the gradient by the weight to the first one, if there are several.
  void LaunchAddition(const LaidConvolution& laid, const ConvolutionPlan& plan, void* sums,
                      LaunchList& launches) const;
  void LaunchPack(const LaidConvolution& laid, const ConvolutionPlan& plan, const WeightView& from, void* to,
                  LaunchList& launches) const;
  void LaunchPack(PackedConvolution& weights, const PackedWeights::Groups& groups,
                  LaunchList& launches) const;
  void LaunchUnpack(const LaidConvolution& laid, const ConvolutionPlan& plan, void* from,
                    const WeightView& to, LaunchList& launches) const;

 private:
  const Kernel* parts_;
  const Kernel* add_;
  const Kernel* pack_;
  const Kernel* unpack_;
  const Kernel* pack_kept_;
};

// The entries in the module's table.
inline constexpr const char* kConvolutionEntries[] = {"convolution", "convolution_add", "convolution_pack",
                                                      "convolution_unpack"};
void RunConvolution(const void* const* args, const uint32_t group[3], void* scratch);
void RunConvolutionAdd(const void* const* args, const uint32_t group[3], void* scratch);
void RunConvolutionPack(const void* const* args, const uint32_t group[3], void* scratch);
void RunConvolutionUnpack(const void* const* args, const uint32_t group[3], void* scratch);
inline constexpr uint32_t kConvolutionSizes[] = {sizeof(LaidConvolution), sizeof(ConvolutionOperands),
                                                 sizeof(void*), sizeof(uint32_t)};
inline constexpr uint32_t kConvolutionAddSizes[] = {sizeof(LaidConvolution), sizeof(void*)};
inline constexpr uint32_t kConvolutionPackSizes[] = {sizeof(LaidConvolution), sizeof(WeightView),
                                                     sizeof(void*)};

}  // namespace xpud::kernels::onednn
