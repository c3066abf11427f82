#include "drivers/cuda/graph.h"

#include <utility>

#include "drivers/cuda/cuda_library.h"

namespace xpud::drivers::cuda {

GraphExec::~GraphExec() {
  device_.MakeCurrent();
  static_cast<void>(device_.Check(cu.cuGraphExecDestroy(handle_)));
}

CudaGraph::~CudaGraph() {
  device_.MakeCurrent();
  static_cast<void>(device_.Check(cu.cuGraphDestroy(graph_)));
}

ze_result_t CudaGraph::Instantiate(std::unique_ptr<ExecutableGraph>& executable) const {
  device_.MakeCurrent();
  CUgraphExec handle = nullptr;
  const ze_result_t result = device_.Check(cu.cuGraphInstantiate(&handle, graph_, 0));
  if (result != ZE_RESULT_SUCCESS) return result;
  executable = std::make_unique<CudaExecutableGraph>(driver(), std::make_shared<GraphExec>(device_, handle));
  return ZE_RESULT_SUCCESS;
}

}  // namespace xpud::drivers::cuda
