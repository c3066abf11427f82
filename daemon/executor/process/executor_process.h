// The daemon's hold on one executor process: started, spoken to, ended with this object. Any thread, except
// where said.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/executor/api/device.h"
#include "daemon/executor/process/channel.h"
#include "daemon/executor/process/private_ring.h"
#include "daemon/executor/process/spawner.h"

namespace xpud::executor::process {

class ExecutorProcess {
 public:
  // Starts one, which loads what it takes to have a device and then waits to be told.
  static absl::StatusOr<std::unique_ptr<ExecutorProcess>> Start(Spawner& spawner,
                                                                const ExecutorCommand& command);
  ~ExecutorProcess();  // kills it and waits for its end, after which it touches no memory
  ExecutorProcess(const ExecutorProcess&) = delete;
  ExecutorProcess& operator=(const ExecutorProcess&) = delete;

  // Waits until it has its device; before that it is good for nothing. Once. Errors: what the executor says,
  // or Unavailable.
  absl::Status TakeDevice();
  bool has_device() const { return devices_ != 0; }

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }
  const DeviceProperties& properties() const { return properties_; }
  uint32_t devices() const { return devices_; }
  PrivateRing& ring(size_t i) { return rings_[i]; }  // the engine thread

  // The executor's memory. `fd` is to be sent along; what comes back may hold one.
  absl::StatusOr<UniqueFd> Allocate(uint64_t address, uint64_t bytes);
  absl::Status Import(uint64_t address, uint64_t bytes, const UniqueFd& fd);
  absl::Status ImportHost(uint64_t address, uint64_t bytes, int fd);
  void Free(uint64_t address);
  void ReleaseHost(uint64_t address);
  // The same for memory that takes as long as it takes (it may be in swap), while the executor answers other
  // questions; those do not wait for it.
  absl::Status ImportSlowly(uint64_t address, uint64_t bytes, int fd);
  void ReleaseSlowly(uint64_t address);
  // Likewise.
  absl::StatusOr<std::string> Assemble(const std::string& text);
  absl::StatusOr<uint64_t> Ask(const kernels::Launch& launch);

  // Of its device, or why not, within `limit`. One thread at a time.
  SensorReadings AskSensors(std::chrono::milliseconds limit) {
    return rings_.front().pages().sensors.Ask(limit);
  }

  void Kill();
  bool Ended() const;
  // It hung, and so was killed: a question that takes no time was not answered.
  bool hung() const { return memory_.timed_out(); }
  // Waits for the end. How it ended, in words, and whether by a signal from outside (SIGKILL, SIGTERM).
  struct End {
    std::string text;
    bool from_outside = false;
    bool ours = false;  // Kill was called before
  };
  End Reap();

 private:
  // The daemon's ends, or the executor's, of the channels.
  struct Ends {
    UniqueFd memory, compiler, imports;
  };
  ExecutorProcess(std::vector<PrivateRing> rings, Ends ends)
      : rings_(std::move(rings)),
        memory_(std::move(ends.memory)),
        compiler_(std::move(ends.compiler)),
        imports_(std::move(ends.imports)) {}
  absl::Status Spawn(Spawner& spawner, const ExecutorCommand& command, const Ends& ends);
  absl::StatusOr<Channel::Reply> AskMemory(RequestKind kind, uint64_t address, uint64_t bytes, int fd = -1);
  bool IsThere();
  absl::StatusOr<Channel::Reply> AskCompiler(RequestKind kind, std::span<const std::byte> input);

  pid_t pid_ = 0;
  UniqueFd pidfd_;
  std::vector<PrivateRing> rings_;
  Channel memory_, compiler_, imports_;
  DeviceProperties properties_;
  uint32_t devices_ = 0;
  std::atomic<bool> killed_{false};
  bool reaped_ = false;
};

}  // namespace xpud::executor::process
