#include "kernels/library/gpu/ptx_module.h"

namespace xpud::kernels {

absl::StatusOr<const Kernel*> PtxModule::Find(size_t entry) {
  if (!made_.load(std::memory_order_acquire)) [[unlikely]] {
    if (!wanted_) store_.InBackground([this] { Make(); });
    wanted_ = true;
    return nullptr;
  }
  if (!status_.ok()) return status_;
  return kernels_[entry];
}

void PtxModule::Make() {
  absl::StatusOr<ModuleImage> image = store_.Assemble(ptx_);
  status_ = image.status();
  if (image.ok()) {
    kernels_.push_back(store_.Add(*std::move(image), entries_[0]));
    for (size_t i = 1; i < entries_.size(); ++i)
      kernels_.push_back(store_.AddEntry(*kernels_[0], entries_[i]));
  }
  made_.store(true, std::memory_order_release);
}

}  // namespace xpud::kernels
