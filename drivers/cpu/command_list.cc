#include "drivers/cpu/command_list.h"

#include "drivers/cpu/module.h"
#include "drivers/cpu/operations.h"

namespace xpud::drivers::cpu {
namespace {

bool IsOneByOne(const xpud_group_size_t& size) {
  return size.groupSizeX == 1 && size.groupSizeY == 1 && size.groupSizeZ == 1;
}

}  // namespace

template <typename Operation>
ze_result_t CpuCommandList::Append(const Operation& operation, const Sync& sync) {
  if (WorkerPool* const pool = PoolIfReady(sync)) [[likely]] {
    EventState* const signal =
        sync.signal == nullptr ? nullptr : &static_cast<CpuEvent*>(sync.signal)->state();
    RunAndSignal(operation, signal, *pool);
    return ZE_RESULT_SUCCESS;
  }
  return AppendKept(Keep(operation, sync));
}

ze_result_t CpuCommandList::AppendLaunch(Kernel& kernel, const LaunchShape& shape, const Sync& sync) {
  const auto& ours = static_cast<const CpuKernel&>(kernel);
  if (shape.group_size == nullptr)
    return Append(Launch{ours.entry(), ours.arguments().pointers(), shape.groups}, sync);
  if (!IsOneByOne(*shape.group_size)) return ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION;
  if (shape.arguments == nullptr && !ours.entry().argument_sizes.empty())
    return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  return Append(Launch{ours.entry(), shape.arguments, shape.groups}, sync);
}

ze_result_t CpuCommandList::AppendLaunchIndirect(Kernel& kernel, const ze_group_count_t* groups,
                                                 const Sync& sync) {
  const auto& ours = static_cast<const CpuKernel&>(kernel);
  return Append(Launch{ours.entry(), ours.arguments().pointers(), {}, groups}, sync);
}

ze_result_t CpuCommandList::AppendLaunchMultiple(std::span<Kernel* const> kernels, const uint32_t* count,
                                                 const ze_group_count_t* groups, const Sync& sync) {
  std::vector<KeptLaunch> launches;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const auto& kernel = static_cast<const CpuKernel&>(*kernels[i]);
    launches.push_back(
        std::move(KeptLaunch(kernel.entry(), kernel.arguments().pointers()).With({}, groups + i)));
  }
  return Append(LaunchMultiple{std::make_shared<const std::vector<KeptLaunch>>(std::move(launches)), count},
                sync);
}

ze_result_t CpuCommandList::AppendCopy(void* destination, const void* source, size_t size, const Sync& sync) {
  return Append(Copy{static_cast<std::byte*>(destination), static_cast<const std::byte*>(source), size},
                sync);
}

ze_result_t CpuCommandList::AppendFill(void* destination, const void* pattern, size_t pattern_size,
                                       size_t size, const Sync& sync) {
  return Append(
      Fill{static_cast<std::byte*>(destination), static_cast<const std::byte*>(pattern), pattern_size, size},
      sync);
}

ze_result_t CpuCommandList::AppendCopyRegion(const RegionCopy& region, const Sync& sync) {
  return Append(CopyRegion{region}, sync);
}

ze_result_t CpuCommandList::AppendBarrier(const Sync& sync) { return Append(Nothing{}, sync); }

ze_result_t CpuCommandList::AppendEventReset(Event& event) {
  return Append(ResetEvent{static_cast<CpuEvent&>(event).shared_state()}, Sync{});
}

ze_result_t CpuCommandList::AppendWriteTimestamp(uint64_t* destination, const Sync& sync) {
  return Append(WriteTimestamp{destination}, sync);
}

ze_result_t CpuCommandList::AppendQueryTimestamps(std::span<Event* const> events, void* destination,
                                                  const size_t* offsets, const Sync& sync) {
  QueryTimestamps query{{}, {}, static_cast<std::byte*>(destination)};
  for (Event* event : events) query.events.push_back(static_cast<CpuEvent*>(event)->shared_state());
  if (offsets != nullptr) query.offsets.assign(offsets, offsets + events.size());
  return Append(query, sync);
}

ze_result_t CpuCommandList::AppendWriteValue64(uint64_t* address, uint64_t value) {
  return Append(WriteValue64{address, value}, Sync{});
}

WorkerPool* ImmediateList::PoolIfReady(const Sync& sync) {
  if (!lane_->idle()) return nullptr;
  for (const Event* event : sync.waits) {
    if (!static_cast<const CpuEvent*>(event)->state().signalled()) return nullptr;
  }
  return &lane_->pool();
}

ze_result_t ImmediateList::AppendKept(std::unique_ptr<Command> command) {
  lane_->Enqueue(std::move(command));
  return synchronous_ ? lane_->Wait(UINT64_MAX) : ZE_RESULT_SUCCESS;
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
