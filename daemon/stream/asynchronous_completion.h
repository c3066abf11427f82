// Completion on a device that works on its own and reports in words of shared memory. REQUIRES: the lane's
// thread.
#pragma once

#include <deque>

#include "daemon/stream/completion.h"
#include "daemon/stream/in_flight.h"
#include "daemon/stream/lineage.h"

namespace xpud::stream {

class AsynchronousCompletion final : public Completion {
 public:
  AsynchronousCompletion(const Context& context, executor::DeviceQueue& queue, uint32_t id);

  bool HasRoom() const override { return commands_in_flight_ < max_in_flight_ && queue_.ready(); }
  absl::Status Submitted(uint64_t sequence, uint64_t sent_ns, bool takes_long) override;
  absl::Status Fence() override;
  absl::Status LastFence(uint64_t sequence) override;
  bool Poll(uint64_t now_ns) override;

  void Retire(const memory::Block& block, uint64_t sequence) override;
  std::optional<memory::Block> Reuse(uint64_t bytes, uint64_t fence) override {
    return in_flight_.Reuse(bytes, fence);
  }
  void FreeRetired() override;

  uint64_t* TakeErrorWord(uint64_t sequence, const kernels::OpCall& call) override;
  void ReturnErrorWord(const kernels::OpCall& call) override;
  Launch Launched(uint64_t sequence, const CheckedOp& op) override;
  void Copied(uint64_t sequence, handles::Buffer* source, handles::Buffer& target, bool fills) override;

  absl::Status WriteTimestamp(uint32_t slot) override;
  void ChargeTurn(uint64_t, uint64_t) override {}

 private:
  // More commands would fill a stream of the driver, whose append then blocks.
  static constexpr uint64_t kMaxInFlight = 512;
  // Work between two fences.
  struct Work {
    uint64_t last;        // sequence
    uint64_t sent_ns;     // when its first command was sent
    uint64_t arrived_ns;  // and when that had arrived
    uint64_t commands;
  };

  void CountTime(uint64_t done, uint64_t now_ns);
  void HandleTrouble();

  InFlight in_flight_;
  Lineage lineage_;
  bool last_fence_ = false;
  std::deque<Work> fenced_work_;
  uint64_t unfenced_ = 0;    // commands since the last fence
  uint64_t sent_ns_ = 0;     // when the first of them was sent; 0: there are none
  uint64_t arrived_ns_ = 0;  // of that command
  uint64_t commands_in_flight_ = 0, max_in_flight_ = kMaxInFlight;
  double command_ns_ = 0;           // mean time of recent commands
  uint64_t unused_error_word_ = 0;  // of commands that report nothing
};

}  // namespace xpud::stream
