// A device with an executor process, or two: `batch` may have one of its own, so that its work cannot hold up
// that of other classes inside the device. A lost executor is replaced: the next one gets the memory at the
// same addresses and reruns the unfinished work, so that sessions continue. Wires the parts of this folder:
// each does one thing and knows nothing of the device. REQUIRES: the lane's thread, unless a function says
// otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/executor/api/background.h"
#include "daemon/executor/api/chunk_mover.h"
#include "daemon/executor/api/device.h"
#include "daemon/executor/api/executor_kind.h"
#include "daemon/executor/process/executor_post.h"
#include "daemon/executor/process/memory_map.h"
#include "daemon/executor/process/process_transfers.h"
#include "daemon/executor/process/queue_slots.h"
#include "daemon/executor/process/spare_executor.h"
#include "proto/base/unique_fd.h"

namespace xpud::executor::process {

struct ProcessDeviceOptions {
  uint32_t index = 0;          // index among the daemon's devices
  Spawner* spawner = nullptr;  // outlives the device
  ExecutorCommand command;     // its rings are those of `rings`
  RingPlan rings;
  std::chrono::milliseconds command_limit{0};  // 0: none
  bool standby = false;                        // the spare executor opens the device in advance
  BatchExecutor batch_executor = BatchExecutor::kOff;
  std::function<void()> wake;  // called on any thread when Poll has something to do
};

class ProcessDevice final : public Device {
 public:
  // `first` is the executor that has taken the device.
  static absl::StatusOr<std::unique_ptr<ProcessDevice>> Create(ProcessDeviceOptions options,
                                                               std::unique_ptr<ExecutorProcess> first);
  ~ProcessDevice() override;  // called when the daemon ends; closes the spawner

  absl::StatusOr<std::unique_ptr<Chunk>> AllocateChunk(uint64_t bytes) override {
    return memory_->AllocateChunk(bytes);
  }
  absl::StatusOr<std::unique_ptr<Chunk>> ReserveChunk(uint64_t bytes) override {
    return memory_->ReserveChunk(bytes);
  }
  Mover* mover() override { return mover_.get(); }
  absl::StatusOr<UniqueFd> ExportMemory(const Chunk& chunk) override { return memory_->Export(chunk); }
  absl::StatusOr<std::unique_ptr<Chunk>> MapPeer(const UniqueFd& memory, uint64_t bytes) override {
    return memory_->MapPeer(memory, bytes);
  }
  absl::StatusOr<std::unique_ptr<HostMemory>> AllocateHost(uint64_t bytes) override;
  absl::StatusOr<std::unique_ptr<HostMemory>> Import(const transport::SharedBytes& memory) override;
  void StartImport(const transport::SharedBytes& memory, uint64_t owner, ImportDone done) override {
    memory_->StartImport(memory, owner, std::move(done));
  }
  absl::StatusOr<std::unique_ptr<DeviceQueue>> CreateQueue(PriorityClass priority, uint64_t owner) override;
  absl::StatusOr<std::string> Assemble(const std::string& text) override;          // thread-safe
  absl::StatusOr<uint64_t> RunHostKernel(const kernels::Launch& launch) override;  // thread-safe
  void Forget(std::vector<const kernels::Kernel*>& kernels) override;
  SensorReadings ReadSensors() override;  // thread-safe
  std::vector<Verdict> Poll() override;
  int alarm_fd() const override { return alarms_.get(); }
  ExecutorStatus executor(ExecutorRole role) const override { return PostOf(role).status(); }
  void SetCommandLimit(std::chrono::milliseconds limit) override { options_.command_limit = limit; }
  uint64_t unopened_bytes() const override;
  std::string loss(ExecutorRole role) const override { return PostOf(role).loss(); }
  uint64_t replayed_launches() const override;
  uint32_t Trace(bool on) override;
  bool Traced(uint32_t ticket) const override;

 private:
  using Clock = std::chrono::steady_clock;
  using State = ExecutorPost::State;

  explicit ProcessDevice(ProcessDeviceOptions options, UniqueFd alarms);
  const ExecutorPost& PostOf(ExecutorRole role) const { return role == ExecutorRole::kAll ? *all_ : *batch_; }
  absl::Status CheckUsable() const;
  // Opens and closes the post for batch, and moves each queue to the post where it should be.
  void Place();
  bool BelongsApart(const ProcessQueue& queue) const;
  void OpenBatch(Clock::time_point now);
  void CloseBatch();
  void ForgetEnded();  // in what the post for batch expects
  void Watch(ExecutorRole role);

  ProcessDeviceOptions options_;  // as given to Create, except for the limit
  UniqueFd alarms_;               // an epoll of the executors' ends
  struct Watched {
    int fd = -1, pid = 0;
    bool operator==(const Watched&) const = default;
  };
  Watched watched_[2];  // what is in it, by role
  SpareExecutor spare_;
  QueueSlots queues_;
  std::unique_ptr<MemoryMap> memory_;
  std::unique_ptr<ExecutorPost> all_;    // of all classes
  std::unique_ptr<ExecutorPost> batch_;  // of batch, if that is apart
  std::unique_ptr<ProcessTransfers> transfers_;
  std::unique_ptr<ChunkMover> mover_;  // null: the driver has no virtual memory
  bool blamed_ = false;                // the device is lost, and all sessions know
  uint32_t batch_ticket_ = 0;          // of the last Trace

  Clock::time_point placed_;        // the last look at where queues are
  Clock::time_point batch_used_;    // when the post for batch last had a queue
  Clock::time_point batch_failed_;  // when it could not be opened
  Background ends_;                 // waits for executors that are closed; last member, destroyed first
};

}  // namespace xpud::executor::process
