// Serves the requests of one channel for an executor's memory. REQUIRES: one thread at a time.
#pragma once

#include <functional>
#include <memory>

#include "daemon/executor/process/channel.h"
#include "daemon/executor/process/executor_memory.h"

namespace xpud::executor::process {

class MemoryServer {
 public:
  // `importer` registers host memory with the driver: this server's own device object, since that may take
  // long. `lost` is called when the device is lost, before the answer, and `end` after it. All outlive the
  // server.
  struct OnLoss {
    std::function<void(const absl::Status&)> lost;
    std::function<void()> end;
  };
  MemoryServer(ExecutorMemory& memory, LevelZeroDevice& importer, Channel& channel, OnLoss on_loss)
      : memory_(memory), importer_(importer), channel_(channel), on_loss_(std::move(on_loss)) {}

  void Run();  // until the daemon is gone

 private:
  void Serve(const Channel::Question& question);
  absl::Status Answer(const Channel::Question& question, UniqueFd& out);
  absl::Status Copy(const Request& request, LevelZeroMemory::Way way);

  ExecutorMemory& memory_;
  LevelZeroDevice& importer_;
  Channel& channel_;
  const OnLoss on_loss_;
  std::unique_ptr<BlockingList> list_;  // made by the first copy
};

}  // namespace xpud::executor::process
