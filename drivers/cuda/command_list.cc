#include "drivers/cuda/command_list.h"

namespace xpud::drivers::cuda {

ze_result_t CudaCommandList::AppendLaunch(Kernel& kernel, const LaunchShape& shape, const Sync& sync) {
  const auto& ours = static_cast<const CudaKernel&>(kernel);
  if (shape.group_size == nullptr)
    return Append(Launch{ours, ours.arguments().pointers(), shape.groups, ours.group_size()}, sync);
  if (shape.arguments == nullptr && !ours.entry().argument_sizes.empty())
    return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  return Append(Launch{ours, shape.arguments, shape.groups, *shape.group_size}, sync);
}

ze_result_t CudaCommandList::AppendGraph(ExecutableGraph& graph, const Sync& sync) {
  return Append(LaunchGraph{static_cast<const CudaExecutableGraph&>(graph).exec()}, sync);
}

ze_result_t ImmediateList::EndCapture(std::unique_ptr<Graph>& graph) {
  CUgraph handle = nullptr;
  const ze_result_t result = stream_->EndCapture(handle);
  if (result == ZE_RESULT_SUCCESS) graph = std::make_unique<CudaGraph>(driver(), stream_->device(), handle);
  return result;
}

ze_result_t RegularList::Close() {
  closed_ = true;
  return ZE_RESULT_SUCCESS;
}

ze_result_t RegularList::Reset() {
  commands_.clear();
  closed_ = false;
  return ZE_RESULT_SUCCESS;
}

ze_result_t RegularList::AppendKept(std::unique_ptr<Command> command) {
  if (closed_) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  commands_.push_back(std::move(command));
  return ZE_RESULT_SUCCESS;
}

ze_result_t RegularList::Run(const Stream& stream) const {
  for (const auto& command : commands_) {
    const ze_result_t result = command->Run(stream);
    if (result != ZE_RESULT_SUCCESS) return result;
  }
  return ZE_RESULT_SUCCESS;
}

}  // namespace xpud::drivers::cuda
