#include "drivers/cpu/command_list.h"

#include <algorithm>

#include "drivers/cpu/graph.h"
#include "drivers/cpu/module.h"
#include "drivers/cpu/operations.h"

namespace xpud::drivers::cpu {
namespace {

bool IsOneByOne(const xpud_group_size_t& size) {
  return size.groupSizeX == 1 && size.groupSizeY == 1 && size.groupSizeZ == 1;
}

// A graph as one command. If its commands wait for events, it needs a thread, which can be stopped.
class GraphCommand final : public Command {
 public:
  GraphCommand(std::shared_ptr<const CommandSequence> commands, const Sync& sync)
      : Command(sync), commands_(std::move(commands)) {}

 private:
  bool Work(WorkerPool& pool, const std::atomic<bool>& stop) const override {
    const uint64_t start = NowNs();
    if (!cpu::Run(*commands_, pool, stop)) return false;
    if (signal() != nullptr)
      signal()->timestamps() ? signal()->SignalWithTimes(start, NowNs()) : signal()->Signal();
    return true;
  }
  const std::shared_ptr<const CommandSequence> commands_;
};

}  // namespace

ze_result_t CpuCommandList::AppendLaunch(Kernel& kernel, const LaunchShape& shape, const Sync& sync) {
  const auto& ours = static_cast<const CpuKernel&>(kernel);
  if (&ours.device() != &device_) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  if (shape.group_size == nullptr)
    return Append(Launch{ours.entry(), ours.arguments().pointers(), shape.groups}, sync);
  if (!IsOneByOne(*shape.group_size)) return ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION;
  if (shape.arguments == nullptr && !ours.entry().argument_sizes.empty())
    return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  if (shape.part != nullptr) return AppendPart(ours, shape, sync);
  return Append(Launch{ours.entry(), shape.arguments, shape.groups}, sync);
}

ze_result_t CpuCommandList::AppendPart(const CpuKernel& kernel, const LaunchShape& shape, const Sync& sync) {
  WorkerPool* const pool = sync.signal == nullptr ? PoolIfReady(sync) : nullptr;
  if (pool == nullptr) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  pool->RunPart(kernel.entry().host, shape.arguments, shape.groups, *shape.part, open_launch_);
  return ZE_RESULT_SUCCESS;
}

ze_result_t CpuCommandList::AppendLaunchIndirect(Kernel& kernel, const ze_group_count_t* groups,
                                                 const Sync& sync) {
  const auto& ours = static_cast<const CpuKernel&>(kernel);
  if (&ours.device() != &device_) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  return Append(Launch{ours.entry(), ours.arguments().pointers(), {}, groups}, sync);
}

ze_result_t CpuCommandList::AppendLaunchMultiple(std::span<Kernel* const> kernels, const uint32_t* count,
                                                 const ze_group_count_t* groups, const Sync& sync) {
  std::vector<KeptLaunch> launches;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const auto& kernel = static_cast<const CpuKernel&>(*kernels[i]);
    if (&kernel.device() != &device_) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    launches.push_back(
        std::move(KeptLaunch(kernel.entry(), kernel.arguments().pointers()).With({}, groups + i)));
  }
  return Append(LaunchMultiple{std::make_shared<const std::vector<KeptLaunch>>(std::move(launches)), count},
                sync);
}

ze_result_t CpuCommandList::AppendGraph(ExecutableGraph& graph, const Sync& sync) {
  const auto& ours = static_cast<const CpuExecutableGraph&>(graph);
  if (&ours.device() != &device_) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  const auto& commands = ours.commands();
  auto command = std::make_unique<GraphCommand>(commands, sync);
  const bool waits =
      std::any_of(commands->begin(), commands->end(), [](const auto& one) { return one->waits(); });
  WorkerPool* const pool = waits ? nullptr : PoolIfReady(sync);
  if (pool == nullptr) return AppendKept(std::move(command));
  constexpr std::atomic<bool> kGoOn{false};
  command->Run(*pool, kGoOn);
  return ZE_RESULT_SUCCESS;
}

ze_result_t ImmediateList::BeginCapture() {
  if (captured_ != nullptr) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  captured_ = std::make_shared<CommandSequence>();
  return ZE_RESULT_SUCCESS;
}

ze_result_t ImmediateList::EndCapture(std::unique_ptr<Graph>& graph) {
  if (captured_ == nullptr) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  graph = std::make_unique<CpuGraph>(device(), std::move(captured_));
  captured_ = nullptr;
  return ZE_RESULT_SUCCESS;
}

WorkerPool* ImmediateList::PoolIfReady(const Sync& sync) {
  if (captured_ != nullptr || !thread_->in_order() || !thread_->idle()) return nullptr;
  for (const Event* event : sync.waits) {
    if (!static_cast<const CpuEvent*>(event)->state().signalled()) return nullptr;
  }
  return &device().pool();
}

ze_result_t ImmediateList::AppendKept(std::unique_ptr<Command> command) {
  if (captured_ != nullptr) {
    captured_->push_back(std::move(command));
    return ZE_RESULT_SUCCESS;
  }
  thread_->Enqueue(std::move(command));
  return synchronous_ ? thread_->Wait(UINT64_MAX) : ZE_RESULT_SUCCESS;
}

ze_result_t RegularList::Close() {
  closed_ = true;
  return ZE_RESULT_SUCCESS;
}

ze_result_t RegularList::Reset() {
  commands_ = std::make_shared<CommandSequence>();
  closed_ = false;
  return ZE_RESULT_SUCCESS;
}

ze_result_t RegularList::AppendKept(std::unique_ptr<Command> command) {
  if (closed_) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  commands_->push_back(std::move(command));
  return ZE_RESULT_SUCCESS;
}

}  // namespace xpud::drivers::cpu
