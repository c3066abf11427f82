// Completion on a device whose work is done when it was appended. REQUIRES: the lane's thread.
#pragma once

#include "daemon/stream/completion.h"

namespace xpud::stream {

class SynchronousCompletion final : public Completion {
 public:
  SynchronousCompletion(const Context& context, executor::DeviceQueue& queue, uint32_t id)
      : Completion(context, queue, id) {}

  bool HasRoom() const override { return true; }
  absl::Status Submitted(uint64_t sequence, uint64_t, bool) override {
    submitted_ = completed_ = sequence;
    return absl::OkStatus();
  }
  absl::Status Fence() override;
  absl::Status LastFence(uint64_t) override { return absl::OkStatus(); }
  bool Poll(uint64_t) override { return false; }

  void Retire(const memory::Block& block, uint64_t) override { context_.state.pool->Free(block); }
  std::optional<memory::Block> Reuse(uint64_t, uint64_t) override { return std::nullopt; }
  void FreeRetired() override {}

  uint64_t* TakeErrorWord(uint64_t, const kernels::OpCall&) override { return &error_word_; }
  void ReturnErrorWord(const kernels::OpCall&) override {}
  uint64_t IdealNs(const kernels::OpCall&) override { return 0; }
  Launch Launched(uint64_t sequence, const CheckedOp& op) override;
  void Moved(uint64_t, Way) override {}
  void Copied(uint64_t, handles::Buffer*, handles::Buffer&, bool) override {}

  absl::Status WriteTimestamp(uint32_t slot) override;
  void ChargeTurn(uint64_t began_ns, uint64_t ended_ns) override {
    context_.counters.busy_ns += context_.state.time.Ended(began_ns, ended_ns);
  }

 private:
  uint64_t error_word_ = 0;
};

}  // namespace xpud::stream
