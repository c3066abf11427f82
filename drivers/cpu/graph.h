// Graphs of the CPU device: commands as they were captured.
#pragma once

#include <memory>

#include "drivers/cpu/command.h"
#include "drivers/frontend/graph.h"

namespace xpud::drivers::cpu {

class CpuGraph final : public Graph {
 public:
  CpuGraph(const Driver* driver, std::shared_ptr<const CommandSequence> commands)
      : Graph(driver), commands_(std::move(commands)) {}
  ze_result_t Instantiate(std::unique_ptr<ExecutableGraph>& executable) const override;

  const std::shared_ptr<const CommandSequence>& commands() const { return commands_; }

 private:
  std::shared_ptr<const CommandSequence> commands_;
};

class CpuExecutableGraph final : public ExecutableGraph {
 public:
  CpuExecutableGraph(const Driver* driver, std::shared_ptr<const CommandSequence> commands)
      : ExecutableGraph(driver), commands_(std::move(commands)) {}
  const std::shared_ptr<const CommandSequence>& commands() const { return commands_; }

 private:
  std::shared_ptr<const CommandSequence> commands_;
};

inline ze_result_t CpuGraph::Instantiate(std::unique_ptr<ExecutableGraph>& executable) const {
  executable = std::make_unique<CpuExecutableGraph>(driver(), commands_);
  return ZE_RESULT_SUCCESS;
}

}  // namespace xpud::drivers::cpu
