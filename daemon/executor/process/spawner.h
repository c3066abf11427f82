// Starts executor processes for a daemon that has given up its own right to start processes. The spawner is a
// process forked early that can do nothing else. It knows the executors' common arguments from its start; the
// daemon names only the device. The executors are children of the daemon.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"

namespace xpud::executor::process {

// Which executor to start.
struct ExecutorCommand {
  char back_end[16] = {};
  uint32_t index = 0;  // index of the device in its back end
  uint32_t rings = 1;  // each with an appending thread
};

class Spawner {
 public:
  // Arguments of all executors, besides ExecutorCommand; see ServeArguments.
  struct Common {
    std::string driver_library;
    std::string confine;
  };

  // REQUIRES: the process has one thread. `confine` is called in the spawner before it serves.
  static absl::StatusOr<std::unique_ptr<Spawner>> Start(const Common& common,
                                                        const std::function<void()>& confine);
  ~Spawner();  // ends the spawner process
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;

  // Returns the executor's pid. `fds` become its descriptors from kMemoryChannelFd on. Thread-safe.
  absl::StatusOr<pid_t> Spawn(const ExecutorCommand& command, std::span<const int> fds);
  // Shuts down. Pending and later Spawn calls fail. Thread-safe.
  void Close();

 private:
  Spawner(pid_t pid, UniqueFd pidfd, UniqueFd socket)
      : pid_(pid), pidfd_(std::move(pidfd)), socket_(std::move(socket)) {}

  const pid_t pid_;
  const UniqueFd pidfd_, socket_;
  Mutex mutex_;
};

}  // namespace xpud::executor::process
