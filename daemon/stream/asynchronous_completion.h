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
  ~AsynchronousCompletion() override { Ended(in_flight_ns_, long_in_flight_); }
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
  uint64_t IdealNs(const kernels::OpCall& call) override;
  Launch Launched(uint64_t sequence, const CheckedOp& op) override;
  void Moved(uint64_t bytes, Way way) override;
  void Copied(uint64_t sequence, handles::Buffer* source, handles::Buffer& target, bool fills) override;
  void Lent(uint64_t sequence, handles::Buffer& source, memory::SharedAllocation& contents) override {
    if (in_flight_.has_reporters()) lineage_.NoteLend(sequence, source, contents);
  }
  void BecameShared(const handles::Buffer& buffer) override { lineage_.BecameShared(buffer); }

  absl::Status WriteTimestamp(uint32_t slot) override;
  void ChargeTurn(uint64_t, uint64_t) override {}

 private:
  // More commands would fill a stream of the driver, whose append then blocks.
  static constexpr uint64_t kMaxInFlight = 512;
  // Work between two fences.
  struct Work {
    uint64_t last = 0;        // sequence
    uint64_t sent_ns = 0;     // when its first command was sent
    uint64_t arrived_ns = 0;  // and when that had arrived
    uint64_t commands = 0;
    double ideal_ns = 0;        // by the peak rates
    uint64_t predicted_ns = 0;  // and corrected
    uint64_t long_commands = 0;
    bool alone = true;  // nothing of another session was in flight when a command was sent
  };

  void CountTime(uint64_t done, uint64_t now_ns);
  // The command that was submitted is in flight.
  void CountInFlight();
  // Work of this prediction is no longer in flight.
  void Ended(uint64_t predicted_ns, uint64_t long_commands);
  void HandleTrouble();

  InFlight in_flight_;
  Lineage lineage_;
  bool last_fence_ = false;
  std::deque<Work> fenced_work_;
  Work unfenced_ = {};  // since the last fence; sent_ns 0: none
  struct Planned {
    double ideal_ns = 0;
    bool takes_long = false;
  };
  Planned planned_;      // of the command that is being launched
  double ideal_ns_ = 0;  // of the command that is being submitted; 0: it has no work that is known of
  uint64_t in_flight_ns_ = 0, long_in_flight_ = 0;  // of the queue, as in DeviceWork
  uint64_t commands_in_flight_ = 0, max_in_flight_ = kMaxInFlight;
  double command_ns_ = 0;           // mean time of recent commands
  uint64_t unused_error_word_ = 0;  // of commands that report nothing
};

}  // namespace xpud::stream
