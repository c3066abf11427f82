// Graphs of a CUDA device: CUDA's own, as a stream captured them.
#pragma once

#include <memory>

#include "drivers/cuda/device.h"
#include "drivers/frontend/graph.h"

namespace xpud::drivers::cuda {

// A CUgraphExec. Shared by the graph and by the commands that launch it. CUDA lets one that runs be
// destroyed.
class GraphExec {
 public:
  GraphExec(CudaDevice& device, CUgraphExec handle) : device_(device), handle_(handle) {}
  ~GraphExec();
  GraphExec(const GraphExec&) = delete;
  GraphExec& operator=(const GraphExec&) = delete;
  CUgraphExec handle() const { return handle_; }
  CudaDevice& device() const { return device_; }

 private:
  CudaDevice& device_;
  CUgraphExec handle_;
};

class CudaGraph final : public Graph {
 public:
  CudaGraph(const Driver* driver, CudaDevice& device, CUgraph graph)
      : Graph(driver), device_(device), graph_(graph) {}
  ~CudaGraph() override;
  ze_result_t Instantiate(std::unique_ptr<ExecutableGraph>& executable) const override;

 private:
  CudaDevice& device_;
  CUgraph graph_;
};

class CudaExecutableGraph final : public ExecutableGraph {
 public:
  CudaExecutableGraph(const Driver* driver, std::shared_ptr<GraphExec> exec)
      : ExecutableGraph(driver), exec_(std::move(exec)) {}
  const std::shared_ptr<GraphExec>& exec() const { return exec_; }

 private:
  std::shared_ptr<GraphExec> exec_;
};

}  // namespace xpud::drivers::cuda
