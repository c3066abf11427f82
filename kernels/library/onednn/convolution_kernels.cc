#include "kernels/library/onednn/convolution_kernels.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "proto/base/check.h"

namespace xpud::kernels::onednn {
namespace {

constexpr int64_t kAddedElements = 64 * 1024;  // by a group

template <typename T>
const T& Argument(const void* const* args, int i) {
  return *static_cast<const T*>(args[i]);
}

// A slice that this thread packs for itself: its launch came before that of the kept weights.
class OwnSlice {
 public:
  std::byte* Pack(const ConvolutionPlan& plan, const WeightView& weight, int64_t slice) {
    if (slice == slice_) return memory_.get();
    const size_t bytes = (plan.slice_bytes() + 63) / 64 * 64;
    if (memory_ == nullptr) memory_.reset(static_cast<std::byte*>(std::aligned_alloc(64, bytes)));
    XPUD_CHECK(memory_ != nullptr);
    plan.Pack(weight, slice, memory_.get());
    slice_ = slice;
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  int64_t slice_ = -1;
};

}  // namespace

void RunConvolution(const void* const* args, const uint32_t group[3], void* scratch) {
  const auto plan = ConvolutionPlan::Of(Argument<LaidConvolution>(args, 0));
  ConvolutionOperands operands = Argument<ConvolutionOperands>(args, 1);
  std::byte* const weights = operands.weight;
  PackedConvolution* const packed = Argument<PackedConvolution*>(args, 2);
  const int64_t per_group = Argument<uint32_t>(args, 3);
  const bool sums = Argument<LaidConvolution>(args, 0).problem.direction == ops::Family::kConvolutionWeight;
  const int64_t first = group[0] * per_group, last = std::min(first + per_group, plan->parts());
  OwnSlice own;
  for (int64_t part = first; part < last; ++part) {
    const int64_t slice = plan->SliceOf(part);
    if (packed != nullptr) {
      operands.weight = packed->Slice(slice);
      if (operands.weight == nullptr) operands.weight = own.Pack(*plan, packed->weight(), slice);
    } else {
      operands.weight =
          sums ? plan->SumOf(part, weights) : weights + slice * static_cast<int64_t>(plan->slice_bytes());
    }
    plan->RunPart(part, operands, scratch);
  }
  if (packed != nullptr) packed->CountRun();
}

void RunConvolutionAdd(const void* const* args, const uint32_t group[3], void*) {
  const auto plan = ConvolutionPlan::Of(Argument<LaidConvolution>(args, 0));
  const int64_t first = group[0] * kAddedElements;
  plan->AddSums(Argument<std::byte*>(args, 1), first,
                std::min(first + kAddedElements, plan->weight_elements()));
}

// A group packs or unpacks a slice.
void RunConvolutionPack(const void* const* args, const uint32_t group[3], void*) {
  const auto plan = ConvolutionPlan::Of(Argument<LaidConvolution>(args, 0));
  plan->Pack(Argument<WeightView>(args, 1), group[0],
             Argument<std::byte*>(args, 2) + group[0] * plan->slice_bytes());
}

void RunConvolutionUnpack(const void* const* args, const uint32_t group[3], void*) {
  const auto plan = ConvolutionPlan::Of(Argument<LaidConvolution>(args, 0));
  plan->Unpack(Argument<std::byte*>(args, 2) + group[0] * plan->slice_bytes(), group[0],
               Argument<WeightView>(args, 1));
}

ConvolutionKernels::ConvolutionKernels(KernelStore& store, const Kernel& sibling)
    : parts_(store.AddEntry(sibling, kConvolutionEntries[0])),
      add_(store.AddEntry(sibling, kConvolutionEntries[1])),
      pack_(store.AddEntry(sibling, kConvolutionEntries[2])),
      unpack_(store.AddEntry(sibling, kConvolutionEntries[3])),
      pack_kept_(store.AddEntry(sibling, "pack")) {}

void ConvolutionKernels::LaunchParts(const LaidConvolution& laid, const ConvolutionPlan& plan,
                                     const ConvolutionOperands& operands, PackedConvolution* packed,
                                     uint32_t parts_per_group, LaunchList& launches) const {
  const auto groups = static_cast<uint32_t>((plan.parts() + parts_per_group - 1) / parts_per_group);
  if (packed != nullptr) packed->CountPlanned(groups);
  Launch& launch = launches.Add();
  launch.Reset(parts_, groups);
  launch.Push(laid);
  launch.Push(operands);
  launch.Push(packed);
  launch.Push(parts_per_group);
}

void ConvolutionKernels::LaunchAddition(const LaidConvolution& laid, const ConvolutionPlan& plan, void* sums,
                                        LaunchList& launches) const {
  if (plan.sums() < 2) return;
  Launch& launch = launches.Add();
  launch.Reset(add_, (plan.weight_elements() + kAddedElements - 1) / kAddedElements);
  launch.Push(laid);
  launch.Push(sums);
}

void ConvolutionKernels::LaunchPack(const LaidConvolution& laid, const ConvolutionPlan& plan,
                                    const WeightView& from, void* to, LaunchList& launches) const {
  Launch& launch = launches.Add();
  launch.Reset(pack_, plan.slices());
  launch.Push(laid);
  launch.Push(from);
  launch.Push(to);
}

void ConvolutionKernels::LaunchPack(PackedConvolution& weights, const PackedWeights::Groups& groups,
                                    LaunchList& launches) const {
  weights.PlanPacking(groups);
  Launch& launch = launches.Add();
  launch.Reset(pack_kept_, groups.count);
  launch.Push(static_cast<PackedWeights*>(&weights));
  launch.Push(groups.first);
}

void ConvolutionKernels::LaunchUnpack(const LaidConvolution& laid, const ConvolutionPlan& plan, void* from,
                                      const WeightView& to, LaunchList& launches) const {
  Launch& launch = launches.Add();
  launch.Reset(unpack_, plan.slices());
  launch.Push(laid);
  launch.Push(to);
  launch.Push(from);
}

}  // namespace xpud::kernels::onednn
