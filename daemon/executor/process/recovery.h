// What happens to the sessions' work after the loss of an executor: which work the next one reruns at once,
// which later, and whose is dropped. Owned by ExecutorPost. REQUIRES: the lane's thread.
//
// Blame: the sessions whose commands had started are suspects. If there are several, each suspect's commands
// are rerun alone, best proven kernels first; a suspect whose commands complete is cleared. The session whose
// rerun crashes the next executor is blamed, or the last remaining suspect, since proving that would cost
// everybody another loss. A command that exceeds the limit is blamed at once. If the executor was killed from
// outside, no session is blamed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/executor/api/device.h"
#include "daemon/executor/process/executor_rings.h"
#include "daemon/executor/process/memory_holder.h"
#include "daemon/executor/process/queue_slots.h"

namespace xpud::executor::process {

class Recovery {
 public:
  static constexpr uint64_t kProbeBytes = kMaxQueues * sizeof(uint64_t);

  // `device`: the daemon's number for it. `probes`: zeroed memory of kProbeBytes. The others outlive this.
  Recovery(uint32_t device, ExecutorRings& rings, const QueueSlots& queues, const MemoryHolder& memory,
           std::unique_ptr<HostMemory> probes)
      : device_(device), rings_(rings), queues_(queues), memory_(memory), probes_(std::move(probes)) {}
  Recovery(const Recovery&) = delete;
  Recovery& operator=(const Recovery&) = delete;

  struct Loss {
    std::string text;                 // how the executor was lost
    std::vector<uint64_t> hung = {};  // sessions whose commands exceeded the limit
    bool from_outside = false;        // it was killed, and not by the daemon
  };
  // An executor has ended: holds back all queues, and finds the suspects. REQUIRES: its rings can be read.
  void Begin(const Loss& loss);
  // The next executor is online. It reruns the work of sessions that are not suspects and whose memory it
  // has.
  void Resume();
  // It has all memory of the session, or cannot have it: reruns the session's work, or blames the session.
  void FinishMemory(uint64_t owner, const absl::Status& given);
  // Reruns the first suspect's work alone. Call often. REQUIRES: the rings are online.
  void Probe();
  // Returns the suspect whose work has been rerun for 10 s and has not ended.
  std::optional<uint64_t> Overdue() const;
  size_t suspects() const { return suspects_.size(); }

  // The session must be closed. Drops its work.
  void Blame(uint64_t owner, std::string reason);
  void BlameSuspects(const std::string& reason);
  std::vector<Verdict> TakeVerdicts() { return std::exchange(verdicts_, {}); }

 private:
  using Clock = std::chrono::steady_clock;

  bool IsSuspect(uint64_t owner) const;
  std::vector<uint64_t> OwnersOfStarted() const;
  void Suspect(std::vector<uint64_t> owners);
  void Rerun(ProcessQueue& queue);
  bool SendProbe();
  bool IsProbeDone() const;
  void ProbeNext();
  uint64_t* ProbeOf(const ProcessQueue& queue) const;

  const uint32_t device_;
  ExecutorRings& rings_;
  const QueueSlots& queues_;
  const MemoryHolder& memory_;
  const std::unique_ptr<HostMemory> probes_;  // a word for each queue slot

  std::string loss_;                               // the last one
  std::vector<uint64_t> suspects_;                 // best proven kernels first
  uint64_t probe_ = 0;                             // value that ends the rerun of the first suspect
  std::optional<Clock::time_point> probed_since_;  // when all of that was sent
  std::vector<Verdict> verdicts_;
};

}  // namespace xpud::executor::process
