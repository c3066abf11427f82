// A device whose executor is a process of its own. A lost executor is replaced: the next one gets the memory
// at the same addresses and the work that was not done, so that sessions go on. A session whose work takes
// the executor down is named, to be closed. The engine thread only, except where said.
//
// After a loss, sessions whose commands had begun are suspects. If there are several, each one's commands are
// run again alone, the best known kernels first; who goes through goes on. Guilty is whose commands take the
// next executor down too, or who is left when all others have gone through: to prove it would cost all
// another loss. A command that runs longer than the limit is guilty without that. Where the executor was
// killed from outside, nobody is suspected.
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
#include "daemon/executor/process/process_queue.h"
#include "proto/base/mutex.h"

namespace xpud::executor::process {

struct ProcessDeviceOptions {
  uint32_t index = 0;          // of the device among the daemon's
  Spawner* spawner = nullptr;  // outlives the device
  ExecutorCommand command;
  std::chrono::milliseconds command_limit{0};  // 0: none
  bool standby = false;                        // have the spare executor take the device ahead
  std::function<void()> wake;                  // any thread: Poll has something to do
};

class ProcessDevice final : public Device {
 public:
  // `first`: the executor that has the device.
  static absl::StatusOr<std::unique_ptr<ProcessDevice>> Create(ProcessDeviceOptions options,
                                                               std::unique_ptr<ExecutorProcess> first);
  ~ProcessDevice() override;  // at the daemon's end: closes the spawner

  absl::StatusOr<std::unique_ptr<Chunk>> AllocateChunk(uint64_t bytes) override;
  absl::StatusOr<std::unique_ptr<HostMemory>> AllocateHost(uint64_t bytes) override;
  absl::StatusOr<std::unique_ptr<HostMemory>> Import(const transport::SharedBytes& memory) override;
  void StartImport(const transport::SharedBytes& memory, uint64_t owner, ImportDone done) override;
  absl::StatusOr<std::unique_ptr<DeviceQueue>> CreateQueue(int priority, uint64_t owner) override;
  absl::StatusOr<std::string> Assemble(const std::string& text) override;  // any thread
  absl::StatusOr<uint64_t> Ask(const kernels::Launch& launch) override;    // any thread
  void Forget(std::vector<const kernels::Kernel*>& kernels) override;
  SensorReadings ReadSensors() override;  // any thread
  std::vector<Verdict> Poll() override;
  int alarm_fd() const override;
  ExecutorStatus executor() const override;
  void SetCommandLimit(std::chrono::milliseconds limit) override { options_.command_limit = limit; }
  std::string loss() const override { return loss_; }
  uint64_t replayed_launches() const override;

  // For queues.
  bool online() const { return state_ != State::kReplacing && state_ != State::kLost; }
  bool HasRoom(size_t ring) const;
  uint64_t position(size_t ring) const;
  bool Send(size_t ring, std::span<const std::byte> messages);
  void WakeExecutor(size_t ring);
  uint32_t Register(const kernels::Kernel& kernel);
  bool SendKernel(size_t ring, uint32_t kernel);  // unless its end has it
  void CountRun(uint32_t kernel) { ++kernels_[kernel].runs; }
  uint64_t runs(uint32_t kernel) const { return kernels_[kernel].runs; }
  bool HasReport(const ProcessQueue& queue) const;
  absl::Status TakeReport(const ProcessQueue& queue);
  void RemoveQueue(ProcessQueue& queue);

 private:
  using Clock = std::chrono::steady_clock;
  class DeviceChunk;
  class SharedHostMemory;
  enum class State {
    kOnline,
    kReplacing,  // the last executor is lost, the next one is being started
    kProbing,    // suspects run again alone; the others are online
    kLost,       // no executor could be started
  };
  // Memory that every executor is to have.
  struct Memory {
    enum class Kind { kChunk, kHost, kClient };
    uint64_t bytes = 0;
    std::shared_ptr<UniqueFd> fd;
    Kind kind = Kind::kChunk;
    uint64_t owner = 0;  // of kClient
    bool operator==(const Memory&) const = default;
  };
  using MemoryMap = std::map<uint64_t, Memory>;  // by address
  struct KernelRecord {
    const kernels::Kernel* kernel = nullptr;
    uint64_t runs = 0;    // known to have ended
    uint32_t loaded = 0;  // bit r: behind ring r of this executor
    bool needed = false;  // by work that is not known to be done, as Forget finds out
  };
  struct ModuleRecord {
    uint32_t number = 0;
    uint32_t loaded = 0;  // as above
  };
  enum class Ending { kEnded, kFaulted, kHung };  // how an executor was lost
  using Process = std::shared_ptr<ExecutorProcess>;
  // A client's memory on its way to the executor. The background's between its work and what follows.
  struct ClientImport {
    std::byte* here;
    uint64_t there;
    Memory memory;
    ImportDone done;
    Process process;  // that has it
    absl::Status status;
  };
  struct Replacement {
    absl::StatusOr<Process> process = absl::UnknownError("");
    ExecutorProcess::End end;  // of the one before
    MemoryMap memory;          // what it has
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
  bool SendModule(size_t ring, const kernels::ModuleImage& image, ModuleRecord& record);
  ModuleRecord& RecordOf(const kernels::ModuleImage& image);
  bool Forget(const kernels::Kernel& kernel);
  size_t rings() const { return options_.command.rings; }
  uint64_t Taken(size_t ring) const;  // how far the executor came

  // Replacing.
  void CheckHealth();
  void Pump();
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
  std::vector<ProcessQueue*> QueuesOf(uint64_t owner) const;
  void StartSpare();
  absl::Status KeepSpare() ABSL_LOCKS_EXCLUDED(published_mutex_);

  ProcessDeviceOptions options_;  // as given, but for the limit
  Addresses addresses_;
  State state_ = State::kOnline;
  std::shared_ptr<ExecutorProcess> process_;
  MemoryMap memory_;
  std::vector<ProcessQueue*> queues_;  // by slot; null: free
  std::vector<KernelRecord> kernels_;  // by Kernel::index
  absl::flat_hash_map<const kernels::ModuleImage*, ModuleRecord> modules_;
  std::vector<uint32_t> free_modules_;       // numbers of forgotten ones
  std::unique_ptr<HostMemory> probe_words_;  // one a slot
  Clock::time_point last_check_;
  struct Head {
    uint64_t position = 0;
    Clock::time_point since;
  };
  std::vector<Head> heads_;  // by ring: how far the executor came, and since when
  uint64_t replaced_ = 0;
  int failures_ = 0;  // to start an executor, in a row

  // After a loss.
  std::string loss_;  // what happened
  Clock::time_point lost_at_;
  Ending ending_ = Ending::kEnded;
  std::vector<uint64_t> hung_;      // owners whose commands made no progress for the limit
  std::vector<uint64_t> suspects_;  // the best known first
  std::map<uint64_t, size_t>
      incomplete_;      // owners: how many of their memories this executor does not have yet
  uint64_t probe_ = 0;  // value that ends the probing of the first one
  bool probe_sent_ = false;
  std::vector<Verdict> verdicts_;

  std::thread replacer_;
  std::atomic<bool> replaced_ready_{false};
  Replacement replacement_;  // the replacer's until replaced_ready_
  std::thread spare_starter_;
  std::atomic<bool> starting_spare_{false};

  // For other threads, which hold on to the executor that they use.
  Process ExecutorOtherThan(const Process& used);  // waits for it; null: there is none
  template <typename Use>
  auto WithExecutor(Use use) -> decltype(use(std::declval<ExecutorProcess&>()));
  void Publish(Process process);
  Mutex published_mutex_;
  CondVar published_changed_;
  Process published_ ABSL_GUARDED_BY(published_mutex_);
  Process spare_ ABSL_GUARDED_BY(published_mutex_);
  std::optional<kernels::Launch> last_asked_ ABSL_GUARDED_BY(published_mutex_);
  Background background_;  // last: ends first
};

}  // namespace xpud::executor::process
