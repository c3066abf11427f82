#include "kernels/library/onednn/convolution_kernels.h"

#include <algorithm>

namespace xpud::kernels::onednn {
namespace {

constexpr int64_t kSumElements = 64 * 1024;  // of a group

template <typename T>
const T& Argument(const void* const* args, int i) {
  return *static_cast<const T*>(args[i]);
}

}  // namespace

void RunConvolution(const void* const* args, const uint32_t group[3], void* scratch) {
  const auto plan = ConvolutionPlan::Of(Argument<ConvolutionProblem>(args, 0));
  const int64_t per_group = Argument<uint32_t>(args, 2);
  const int64_t first = group[0] * per_group, last = std::min(first + per_group, plan->parts());
  for (int64_t part = first; part < last; ++part)
    plan->RunPart(part, Argument<ConvolutionOperands>(args, 1), scratch);
}

void RunConvolutionSum(const void* const* args, const uint32_t group[3], void*) {
  const auto plan = ConvolutionPlan::Of(Argument<ConvolutionProblem>(args, 0));
  const int64_t first = group[0] * kSumElements;
  plan->SumParts(Argument<std::byte*>(args, 1), first,
                 std::min(first + kSumElements, plan->weight_elements()));
}

void RunConvolutionPack(const void* const* args, const uint32_t*, void*) {
  ConvolutionPlan::Of(Argument<ConvolutionProblem>(args, 0))
      ->Pack(Argument<WeightView>(args, 1), Argument<std::byte*>(args, 2));
}

void RunConvolutionUnpack(const void* const* args, const uint32_t*, void*) {
  ConvolutionPlan::Of(Argument<ConvolutionProblem>(args, 0))
      ->Unpack(Argument<std::byte*>(args, 2), Argument<WeightView>(args, 1));
}

ConvolutionKernels::ConvolutionKernels(KernelStore& store, const Kernel& sibling)
    : parts_(store.AddEntry(sibling, kConvolutionEntries[0])),
      sum_(store.AddEntry(sibling, kConvolutionEntries[1])),
      pack_(store.AddEntry(sibling, kConvolutionEntries[2])),
      unpack_(store.AddEntry(sibling, kConvolutionEntries[3])) {}

void ConvolutionKernels::LaunchParts(const ConvolutionProblem& problem, const ConvolutionPlan& plan,
                                     const ConvolutionOperands& operands, uint32_t parts_per_group,
                                     LaunchList& launches) const {
  Launch& launch = launches.Add();
  launch.Reset(parts_, static_cast<uint32_t>((plan.parts() + parts_per_group - 1) / parts_per_group));
  launch.Push(problem);
  launch.Push(operands);
  launch.Push(parts_per_group);
}

void ConvolutionKernels::LaunchSum(const ConvolutionProblem& problem, const ConvolutionPlan& plan,
                                   void* weights, LaunchList& launches) const {
  if (plan.parts() < 2) return;
  Launch& launch = launches.Add();
  launch.Reset(sum_, static_cast<uint32_t>((plan.weight_elements() + kSumElements - 1) / kSumElements));
  launch.Push(problem);
  launch.Push(weights);
}

void ConvolutionKernels::LaunchPack(const ConvolutionProblem& problem, const WeightView& from, void* to,
                                    LaunchList& launches) const {
  Launch& launch = launches.Add();
  launch.Reset(pack_, 1);
  launch.Push(problem);
  launch.Push(from);
  launch.Push(to);
}

void ConvolutionKernels::LaunchUnpack(const ConvolutionProblem& problem, void* from, const WeightView& to,
                                      LaunchList& launches) const {
  Launch& launch = launches.Add();
  launch.Reset(unpack_, 1);
  launch.Push(problem);
  launch.Push(to);
  launch.Push(from);
}

}  // namespace xpud::kernels::onednn
