// One executor process, from its start to its end. Thread-safe, unless a function says otherwise.
#pragma once

#include <sys/types.h>

#include <array>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/executor/api/chunk_mover.h"
#include "daemon/executor/api/device.h"
#include "daemon/executor/process/channel.h"
#include "daemon/executor/process/private_ring.h"
#include "daemon/executor/process/spawner.h"

namespace xpud::executor::process {

class ExecutorProcess {
 public:
  // Starts a process, which loads the drivers and waits for TakeDevice.
  static absl::StatusOr<std::unique_ptr<ExecutorProcess>> Start(Spawner& spawner,
                                                                const ExecutorCommand& command);
  ~ExecutorProcess();  // kills the process and waits for its end, after which it accesses no memory
  ExecutorProcess(const ExecutorProcess&) = delete;
  ExecutorProcess& operator=(const ExecutorProcess&) = delete;

  // Waits until the process has its device. Called once, before all other requests. Returns the executor's
  // error, or Unavailable.
  absl::Status TakeDevice();
  bool has_device() const { return devices_ != 0; }

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }
  const DeviceProperties& properties() const { return properties_; }
  uint32_t devices() const { return devices_; }
  std::span<PrivateRing> rings() { return rings_; }  // REQUIRES: the lane's thread

  // Requests for the executor's memory. `fd` is sent along; the result may hold an fd. Those for device
  // memory exchange what an earlier one for the same size brought to the address. If that fails, nothing is
  // there.
  absl::StatusOr<UniqueFd> Allocate(uint64_t address, uint64_t bytes);
  absl::Status Import(uint64_t address, uint64_t bytes, const UniqueFd& fd);
  absl::Status ImportHost(uint64_t address, uint64_t bytes, int fd);
  // Keeps the addresses without memory. If that fails, the memory is still there.
  absl::Status Reserve(uint64_t address, uint64_t bytes);
  void Free(uint64_t address);
  void ReleaseHost(uint64_t address);
  // Whether it answers. Then it has done what was asked above, Free and ReleaseHost included.
  bool IsThere();
  // The same for memory that may take very long (it may be in swap). Other requests do not wait for it.
  absl::Status ImportSlowly(uint64_t address, uint64_t bytes, int fd);
  void ReleaseSlowly(uint64_t address);
  // Requests of one thread of a ChunkMover, each with a channel of its own: no other request waits for them,
  // and they may take long. Thread-safe for each thread.
  class MoverEnd {
   public:
    // As above.
    absl::StatusOr<UniqueFd> Allocate(uint64_t address, uint64_t bytes);
    absl::Status Import(uint64_t address, uint64_t bytes, const UniqueFd& fd);
    absl::Status Reserve(uint64_t address, uint64_t bytes);
    // Copies a part of a chunk, at `address`, to host memory of the executor, or from there. NotFound: it
    // does not have this host memory, maybe not yet.
    absl::Status CopyOut(uint64_t address, const std::byte* host, uint64_t bytes);
    absl::Status CopyIn(uint64_t address, const std::byte* host, uint64_t bytes);

   private:
    friend class ExecutorProcess;
    MoverEnd(ExecutorProcess& process, Channel& channel) : process_(process), channel_(channel) {}
    absl::StatusOr<Channel::Reply> Ask(const Request& request, int fd = -1);

    ExecutorProcess& process_;
    Channel& channel_;
  };
  MoverEnd mover(uint32_t thread) { return {*this, movers_[thread]}; }
  // Whether chunks can leave the device. REQUIRES: has_device().
  bool moves_chunks() const { return moves_chunks_; }
  // Requests to the compiler's thread of the executor.
  absl::StatusOr<std::string> Assemble(const std::string& text);
  absl::StatusOr<uint64_t> RunHostKernel(const kernels::Launch& launch);

  // Returns the device's sensors, or why they cannot be read, within `limit`. One thread at a time.
  SensorReadings AskSensors(std::chrono::milliseconds limit) {
    return rings_.front().pages().sensors.Ask(limit);
  }

  void Kill();
  bool Ended() const;
  // Whether it was killed because it did not answer a request that takes no time.
  bool hung() const { return memory_.timed_out(); }
  // Waits for the end. Returns a description, and whether a signal from outside (SIGKILL, SIGTERM) ended it.
  struct End {
    std::string text;
    bool from_outside = false;
    bool ours = false;  // Kill was called
  };
  End Reap();

 private:
  // The fds of the channels for one side.
  struct Ends {
    UniqueFd memory, compiler, imports;
    std::array<UniqueFd, ChunkMover::kThreads> movers;
  };
  ExecutorProcess(std::vector<PrivateRing> rings, Ends ends);
  absl::Status Spawn(Spawner& spawner, const ExecutorCommand& command, const Ends& ends);
  absl::StatusOr<Channel::Reply> AskMemory(RequestKind kind, uint64_t address, uint64_t bytes, int fd = -1);
  absl::StatusOr<Channel::Reply> AskCompiler(RequestKind kind, std::span<const std::byte> input);

  pid_t pid_ = 0;
  UniqueFd pidfd_;
  std::vector<PrivateRing> rings_;
  Channel memory_, compiler_, imports_;
  std::deque<Channel> movers_;
  DeviceProperties properties_;
  uint32_t devices_ = 0;
  bool moves_chunks_ = false;
  std::atomic<bool> killed_{false};
  bool reaped_ = false;
};

}  // namespace xpud::executor::process
