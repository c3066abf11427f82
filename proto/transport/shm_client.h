// The client's end of a session on one device, over shared memory. See transport.h for threads.
#pragma once

#include <memory>
#include <vector>

#include "proto/base/mapping.h"
#include "proto/base/spin.h"
#include "proto/base/unique_fd.h"
#include "proto/transport/futex.h"
#include "proto/transport/layout.h"
#include "proto/transport/requests.h"
#include "proto/transport/transport.h"

namespace xpud::transport {

class ShmClient final : public ClientTransport {
 public:
  // What performs the work that this client waits for: the daemon, on this machine's cores; a device that
  // works asynchronously; or a relay, which forwards a remote session.
  enum class Waits { kForDaemon, kForDevice, kForRelay };
  // `socket` is the session's, on which the device was opened.
  static absl::StatusOr<std::unique_ptr<ShmClient>> Create(std::shared_ptr<const SessionSocket> socket,
                                                           DeviceFds fds, size_t staging_bytes, Waits waits);

  std::byte* Reserve(size_t bytes) override;
  void Commit(size_t bytes) override { pending_ += bytes; }
  void Publish() override;
  void RequestAnswer(uint64_t what) override;
  void NotePolling() override;
  uint64_t Completed(uint32_t queue) const override;
  uint32_t Errors(uint32_t queue) const override;
  absl::Status LastError(uint32_t queue) const override;
  uint64_t Timestamp(uint32_t slot) const override;
  uint64_t AllocatedBytes() const override;
  uint64_t Credit() const override { return completion().memory.credit.load(std::memory_order_seq_cst); }
  bool Claim(uint64_t bytes) override;
  uint64_t AnsweredReserve() const override {
    return completion().memory.answered.load(std::memory_order_acquire);
  }
  std::optional<MemoryShortage> Refusal() const override;
  std::span<std::byte> staging() override { return {staging_.data(), staging_.size()}; }
  absl::Status Wait(absl::FunctionRef<bool()> done, const std::function<absl::Status()>& interrupt) override;
  absl::Status Await(const Milestone& milestone, const std::function<absl::Status()>& interrupt) override;
  absl::Status Listen(absl::FunctionRef<bool()> done, const std::function<absl::Status()>& interrupt,
                      const Sleep& sleep) override;
  void LookAgain() override { FutexWakeAll(completion().wake); }
  absl::Status status() const override;
  absl::Status CheckOpen() const override;

 private:
  static constexpr SpinTime SpinTimeOf(Waits waits) {
    if (waits == Waits::kForRelay) return spin::kRelay;
    return waits == Waits::kForDevice ? spin::kClientOfGpu : spin::kClientOfCpu;
  }

  explicit ShmClient(Waits waits) : for_relay_(waits == Waits::kForRelay), spin_(SpinTimeOf(waits)) {}
  absl::Status SpinAndSleepUntil(absl::FunctionRef<bool()> done,
                                 const std::function<absl::Status()>& interrupt, const Sleep& sleep,
                                 int relaxes);
  bool SpinUntil(absl::FunctionRef<bool()> done, int relaxes);
  absl::Status SleepUntil(absl::FunctionRef<bool()> done, const std::function<absl::Status()>& interrupt,
                          const Sleep& sleep);
  void NotePublishTime();
  static void AddWait(std::atomic<uint64_t>& waits, uint64_t what);
  ControlPage& control() const { return *reinterpret_cast<ControlPage*>(control_mapping_.data()); }
  const CompletionPage& completion() const {
    return *reinterpret_cast<const CompletionPage*>(completion_mapping_.data());
  }

  // Constant after construction.
  std::shared_ptr<const SessionSocket> socket_;
  UniqueFd doorbell_;
  Mapping control_mapping_, ring_, completion_mapping_, staging_;
  bool light_publish_ = false;  // a daemon that goes to sleep issues the barrier
  const bool for_relay_;
  std::atomic<bool> is_quiet_{false};  // the relay was asked to report only one command's end
  const SpinTime spin_;

  // Under the client's lock. Commands gather in private memory and reach the ring together: a store to a
  // cache line that the daemon has just read retires slowly, and would delay every lock taken meanwhile.
  uint64_t tail_ = 0;   // published
  size_t pending_ = 0;  // committed bytes of batch_
  uint64_t times_ = 0;  // that were noted in PublishTimes
  uint64_t head_ = 0;   // last value read
  std::vector<std::byte> batch_;
};

}  // namespace xpud::transport
