#include "kernels/library/gpu/ptx_module.h"

namespace xpud::kernels {

absl::StatusOr<const Kernel*> PtxModule::Find(size_t entry) {
  if (!kernels_.empty()) [[likely]]
    return kernels_[entry];
  if (code_ == nullptr) code_ = store_.Assemble(ptx_);
  switch (code_->state()) {
    case Code::State::kPending:
      return nullptr;
    case Code::State::kFailed:
      return code_->failure();
    case Code::State::kReady:
      AddKernels();
  }
  return kernels_[entry];
}

void PtxModule::AddKernels() {
  kernels_.push_back(store_.Add({code_, &code_->image()}, entries_[0]));
  for (size_t i = 1; i < entries_.size(); ++i) kernels_.push_back(store_.AddEntry(*kernels_[0], entries_[i]));
}

}  // namespace xpud::kernels
