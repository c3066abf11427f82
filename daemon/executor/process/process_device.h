// A device with an executor process. A lost executor is replaced: the next one gets the memory at the same
// addresses and reruns the unfinished work, so that sessions continue. Wires the parts of this folder: each
// does one thing and knows nothing of the device. REQUIRES: the lane's thread, unless a function says
// otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/executor/api/device.h"
#include "daemon/executor/process/executor_rings.h"
#include "daemon/executor/process/hang_watch.h"
#include "daemon/executor/process/kernel_table.h"
#include "daemon/executor/process/memory_map.h"
#include "daemon/executor/process/queue_slots.h"
#include "daemon/executor/process/recovery.h"
#include "daemon/executor/process/replacer.h"
#include "daemon/executor/process/shared_executor.h"
#include "daemon/executor/process/spare_executor.h"

namespace xpud::executor::process {

struct ProcessDeviceOptions {
  uint32_t index = 0;          // index among the daemon's devices
  Spawner* spawner = nullptr;  // outlives the device
  ExecutorCommand command;
  std::chrono::milliseconds command_limit{0};  // 0: none
  bool standby = false;                        // the spare executor opens the device in advance
  std::function<void()> wake;                  // called on any thread when Poll has something to do
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
  int alarm_fd() const override { return process_ != nullptr ? process_->pidfd() : -1; }
  ExecutorStatus executor() const override { return {rings_.online() ? process_->pid() : 0, replaced_}; }
  void SetCommandLimit(std::chrono::milliseconds limit) override { options_.command_limit = limit; }
  std::string loss() const override { return loss_; }
  uint64_t replayed_launches() const override { return rings_.replayed_launches(); }
  uint32_t Trace(bool on) override { return rings_.Trace(on); }
  bool Traced(uint32_t ticket) const override { return rings_.Traced(ticket); }

 private:
  using Clock = std::chrono::steady_clock;

  explicit ProcessDevice(ProcessDeviceOptions options);
  absl::Status CheckUsable() const;
  void TakeTimes();
  void CheckHealth();
  void ProbeSuspects();
  // `hung`: the sessions whose commands exceeded the limit.
  void Lose(Replacer::Ending ending, const std::string& what, std::vector<uint64_t> hung = {});
  void FinishReplacement(Replacer::Replacement replacement);
  absl::Status Adopt(Replacer::Replacement replacement);

  ProcessDeviceOptions options_;  // as given to Create, except for the limit
  Process process_;               // until its replacement is ready, the lost one; null: there is none
  SharedExecutor shared_;
  SpareExecutor spare_;
  ExecutorRings rings_;  // online: process_ works
  KernelTable kernels_{rings_};
  QueueSlots queues_;
  HangWatch hangs_{rings_, queues_};
  std::unique_ptr<MemoryMap> memory_;
  std::unique_ptr<Recovery> recovery_;
  Replacer replacer_;

  Clock::time_point last_check_;
  uint64_t replaced_ = 0;
  int failures_ = 0;      // consecutive failures to start an executor
  bool is_lost_ = false;  // for good: no executor could be started

  // The last loss.
  std::string loss_;  // its description
  Clock::time_point lost_at_;
  std::vector<uint64_t> hung_;  // see Lose; until the executor has ended
};

}  // namespace xpud::executor::process
