// The weight of a convolution in oneDNN's layout, slice by slice.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/library/onednn/convolution_plan.h"
#include "kernels/library/onednn/packed_weights.h"

namespace xpud::kernels::onednn {

class PackedConvolution : public PackedWeights {
 public:
  // A group packs a slice. `weight` is as ConvolutionPlan::Pack needs it.
  PackedConvolution(std::shared_ptr<const ConvolutionPlan> plan, const WeightView& weight);

  void Pack(uint32_t group) override;
  // Returns the packed slice, or null if nobody has packed it yet.
  std::byte* Slice(int64_t slice) const;
  const WeightView& weight() const { return weight_; }

 private:
  const std::shared_ptr<const ConvolutionPlan> plan_;
  const WeightView weight_;
  std::vector<std::atomic<bool>> packed_;  // by slice
};

}  // namespace xpud::kernels::onednn
