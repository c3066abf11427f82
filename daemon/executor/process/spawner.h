// Starts executor processes for a daemon that gives up its own right to start anything: a process forked from
// it early, which can do this one thing. What the executors are given, it knows since then; the daemon only
// says for which device. They are the daemon's children.
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

// Which executor is to be started.
struct ExecutorCommand {
  char back_end[16] = {};
  uint32_t index = 0;  // of the device among the back end's
  uint32_t rings = 1;  // each with a thread that appends
};

class Spawner {
 public:
  // What executors are told besides ExecutorCommand: see kServeArgument.
  struct Common {
    std::string driver_library;
    std::string confine;
  };

  // Call while the process has one thread. `confine` is called in the spawner before it serves.
  static absl::StatusOr<std::unique_ptr<Spawner>> Start(const Common& common,
                                                        const std::function<void()>& confine);
  ~Spawner();  // ends it
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;

  // The executor's pid. `fds` become its descriptors from kMemoryChannelFd on. Any thread.
  absl::StatusOr<pid_t> Spawn(const ExecutorCommand& command, std::span<const int> fds);
  // Shuts down: pending and later Spawn calls fail. Any thread.
  void Close();

 private:
  Spawner(pid_t pid, UniqueFd pidfd, UniqueFd socket)
      : pid_(pid), pidfd_(std::move(pidfd)), socket_(std::move(socket)) {}

  const pid_t pid_;
  const UniqueFd pidfd_, socket_;
  Mutex mutex_;
};

}  // namespace xpud::executor::process
