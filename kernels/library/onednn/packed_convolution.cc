#include "kernels/library/onednn/packed_convolution.h"

#include <utility>

namespace xpud::kernels::onednn {

PackedConvolution::PackedConvolution(std::shared_ptr<const ConvolutionPlan> plan, const WeightView& weight)
    : plan_(std::move(plan)), weight_(weight), packed_(static_cast<size_t>(plan_->slices())) {
  Allocate(plan_->weight_bytes(), static_cast<uint32_t>(plan_->slices()));
}

void PackedConvolution::Pack(uint32_t group) {
  if (memory() == nullptr) return;
  plan_->Pack(weight_, group, memory() + group * plan_->slice_bytes());
  packed_[group].store(true, std::memory_order_release);
}

std::byte* PackedConvolution::Slice(int64_t slice) const {
  const auto index = static_cast<size_t>(slice);
  if (!packed_[index].load(std::memory_order_acquire)) return nullptr;
  return memory() + index * plan_->slice_bytes();
}

}  // namespace xpud::kernels::onednn
