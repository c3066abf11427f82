// A device with an executor process. A lost executor is replaced: the next one gets the memory at the same
// addresses and runs the unfinished work, so that sessions continue. REQUIRES: the lane's thread, unless a
// function says otherwise.
//
// Blame: after a loss, the sessions whose commands had started are suspects. If there are several, each
// suspect's commands run again alone, best proven kernels first; a suspect whose commands complete is
// cleared. The session whose replay crashes the replacement is blamed, or the last remaining suspect, since
// proving that would cost everybody another loss. A command that exceeds the limit is blamed at once. If the
// executor was killed from outside, no session is blamed.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "daemon/executor/api/background.h"
#include "daemon/executor/api/device.h"
#include "daemon/executor/process/address_space.h"
#include "daemon/executor/process/executor_process.h"
#include "daemon/executor/process/executor_rings.h"
#include "daemon/executor/process/kernel_table.h"
#include "daemon/executor/process/process_queue.h"
#include "daemon/executor/process/queue_slots.h"
#include "proto/base/mutex.h"

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

  absl::StatusOr<std::unique_ptr<Chunk>> AllocateChunk(uint64_t bytes) override;
  absl::StatusOr<std::unique_ptr<HostMemory>> AllocateHost(uint64_t bytes) override;
  absl::StatusOr<std::unique_ptr<HostMemory>> Import(const transport::SharedBytes& memory) override;
  void StartImport(const transport::SharedBytes& memory, uint64_t owner, ImportDone done) override;
  absl::StatusOr<std::unique_ptr<DeviceQueue>> CreateQueue(int priority, uint64_t owner) override;
  absl::StatusOr<std::string> Assemble(const std::string& text) override;  // thread-safe
  absl::StatusOr<uint64_t> Ask(const kernels::Launch& launch) override;    // thread-safe
  void Forget(std::vector<const kernels::Kernel*>& kernels) override;
  SensorReadings ReadSensors() override;  // thread-safe
  std::vector<Verdict> Poll() override;
  int alarm_fd() const override;
  ExecutorStatus executor() const override;
  void SetCommandLimit(std::chrono::milliseconds limit) override { options_.command_limit = limit; }
  std::string loss() const override { return loss_; }
  uint64_t replayed_launches() const override { return rings_.replayed_launches(); }
  uint32_t Trace(bool on) override { return rings_.Trace(on); }
  bool Traced(uint32_t ticket) const override { return rings_.Traced(ticket); }

 private:
  using Clock = std::chrono::steady_clock;
  class DeviceChunk;
  class SharedHostMemory;
  enum class State {
    kOnline,
    kReplacing,  // the executor is lost, the next one is starting
    kProbing,    // suspects are replayed alone; the other sessions are online
    kLost,       // no executor could be started
  };
  // Memory that every executor must have.
  struct Memory {
    enum class Kind { kChunk, kHost, kClient };
    uint64_t bytes = 0;
    std::shared_ptr<UniqueFd> fd;
    Kind kind = Kind::kChunk;
    uint64_t owner = 0;  // session that shares a kClient
    bool operator==(const Memory&) const = default;
  };
  using MemoryMap = std::map<uint64_t, Memory>;  // by address
  enum class Ending { kEnded, kFaulted, kHung };  // how the executor was lost
  using Process = std::shared_ptr<ExecutorProcess>;
  // The import of a client's memory. Belongs to the background thread until its continuation runs.
  struct ClientImport {
    std::byte* here;
    uint64_t there;
    Memory memory;
    ImportDone done;
    Process process;  // the executor that imports it
    absl::Status status;
  };
  struct Replacement {
    absl::StatusOr<Process> process = absl::UnknownError("");
    ExecutorProcess::End end;  // how the lost executor ended
    MemoryMap memory;          // memory that the replacement has mapped
  };

  struct Addresses {
    AddressSpace chunks, hosts, clients;
  };
  ProcessDevice(ProcessDeviceOptions options, Addresses addresses);
  absl::Status AddHostMemory(uint64_t address, uint64_t bytes, std::shared_ptr<UniqueFd> fd);
  void RemoveMemory(uint64_t address);
  void Import(const std::shared_ptr<ClientImport>& import);
  void FinishImport(const std::shared_ptr<ClientImport>& import);
  static absl::Status Give(ExecutorProcess& process, uint64_t address, const Memory& memory);
  static void TakeBack(ExecutorProcess& process, uint64_t address, const Memory& memory);
  void TakeTimes();

  // Replacement.
  void CheckHealth();
  void SendPending();
  void CheckHang();
  void Lose(Ending ending, const std::string& what);
  void StartReplacement();
  absl::StatusOr<Process> TakeDevice(Process spare) const;
  Replacement Replace(const std::shared_ptr<ExecutorProcess>& dead, std::shared_ptr<ExecutorProcess> spare,
                      const MemoryMap& memory, Ending ending) const;
  void FinishReplacement();
  absl::Status Adopt(Replacement replacement);
  void GiveAgain(uint64_t address, const Memory& memory);
  void FinishGiving(uint64_t owner, const absl::Status& given);
  bool IsSuspect(uint64_t owner) const;
  void FindSuspects(bool from_outside);
  void Suspect(std::vector<uint64_t> owners);
  void Blame(uint64_t owner, std::string reason);
  void Probe();
  void ProbeNext();
  void StartSpare();
  absl::Status KeepSpare() ABSL_LOCKS_EXCLUDED(published_mutex_);

  ProcessDeviceOptions options_;  // as given to Create, except for the limit
  Addresses addresses_;
  State state_ = State::kOnline;
  std::shared_ptr<ExecutorProcess> process_;
  MemoryMap memory_;
  ExecutorRings rings_;
  KernelTable kernels_{rings_};
  QueueSlots queues_;
  std::unique_ptr<HostMemory> probe_words_;  // one word per queue slot
  Clock::time_point last_check_;
  struct Head {
    uint64_t position = 0;
    Clock::time_point since;
  };
  std::vector<Head> heads_;  // by ring: the executor's position, and since when
  uint64_t replaced_ = 0;
  int failures_ = 0;  // consecutive failures to start an executor

  // State after a loss.
  std::string loss_;  // description of the loss
  Clock::time_point lost_at_;
  Ending ending_ = Ending::kEnded;
  std::vector<uint64_t> hung_;      // sessions whose commands made no progress within the limit
  std::vector<uint64_t> suspects_;  // best proven kernels first
  std::map<uint64_t, size_t>
      incomplete_;      // by session: count of its client memories that this executor does not have yet
  uint64_t probe_ = 0;  // value that ends the replay of the first suspect
  bool probe_sent_ = false;
  std::vector<Verdict> verdicts_;

  std::thread replacer_;
  std::atomic<bool> replaced_ready_{false};
  Replacement replacement_;  // belongs to the replacer's thread until replaced_ready_
  std::thread spare_starter_;
  std::atomic<bool> starting_spare_{false};

  // For other threads, which share ownership of the executor that they use.
  Process ExecutorOtherThan(const Process& used);  // waits for the next executor; null: there is none
  template <typename Use>
  auto WithExecutor(Use use) -> decltype(use(std::declval<ExecutorProcess&>()));
  void Publish(Process process);
  Mutex published_mutex_;
  CondVar published_changed_;
  Process published_ ABSL_GUARDED_BY(published_mutex_);
  Process spare_ ABSL_GUARDED_BY(published_mutex_);
  std::optional<kernels::Launch> last_asked_ ABSL_GUARDED_BY(published_mutex_);
  Background background_;  // last member, so that it is destroyed first
};

}  // namespace xpud::executor::process
