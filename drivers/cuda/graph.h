// Graphs of a CUDA device: CUDA's graphs, captured from a stream.
#pragma once

#include <memory>

#include "drivers/cuda/device.h"
#include "drivers/frontend/graph.h"

namespace xpud::drivers::cuda {

// Owns a CUgraphExec. Shared by the graph and the commands that launch it. CUDA allows destroying one that
// runs.
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
