// Graphs of a CPU device: commands as they were captured. They run on that device only.
#pragma once

#include <memory>

#include "drivers/cpu/command.h"
#include "drivers/cpu/device.h"
#include "drivers/frontend/graph.h"

namespace xpud::drivers::cpu {

class CpuGraph final : public Graph {
 public:
  CpuGraph(const CpuDevice& device, std::shared_ptr<const CommandSequence> commands)
      : Graph(device.driver()), device_(device), commands_(std::move(commands)) {}
  ze_result_t Instantiate(std::unique_ptr<ExecutableGraph>& executable) const override;

  const std::shared_ptr<const CommandSequence>& commands() const { return commands_; }

 private:
  const CpuDevice& device_;
  std::shared_ptr<const CommandSequence> commands_;
};

class CpuExecutableGraph final : public ExecutableGraph {
 public:
  CpuExecutableGraph(const CpuDevice& device, std::shared_ptr<const CommandSequence> commands)
      : ExecutableGraph(device.driver()), device_(device), commands_(std::move(commands)) {}
  const CpuDevice& device() const { return device_; }
  const std::shared_ptr<const CommandSequence>& commands() const { return commands_; }

 private:
  const CpuDevice& device_;
  std::shared_ptr<const CommandSequence> commands_;
};

inline ze_result_t CpuGraph::Instantiate(std::unique_ptr<ExecutableGraph>& executable) const {
  executable = std::make_unique<CpuExecutableGraph>(device_, commands_);
  return ZE_RESULT_SUCCESS;
}

}  // namespace xpud::drivers::cpu
