#include "drivers/cuda/command_list.h"

namespace xpud::drivers::cuda {

template <typename Operation>
ze_result_t CudaCommandList::AppendNow(const Operation& operation, const Sync& sync) {
  stream_->device().MakeCurrent();
  for (const Event* event : sync.waits) {
    const ze_result_t result = EnqueueWait(*stream_, static_cast<const CudaEvent*>(event)->state());
    if (result != ZE_RESULT_SUCCESS) return result;
  }
  const ze_result_t result = Enqueue(*stream_, operation, SignalOf(sync));
  return synchronous_ && result == ZE_RESULT_SUCCESS ? stream_->Wait(UINT64_MAX) : result;
}

template <typename Operation>
ze_result_t CudaCommandList::Append(const Operation& operation, const Sync& sync) {
  if (stream_ != nullptr) [[likely]]
    return AppendNow(operation, sync);
  return AppendKept(Keep(operation, sync));
}

ze_result_t CudaCommandList::AppendLaunch(Kernel& kernel, const LaunchShape& shape, const Sync& sync) {
  const auto& ours = static_cast<const CudaKernel&>(kernel);
  if (shape.group_size == nullptr)
    return Append(Launch{ours, ours.arguments().pointers(), shape.groups, ours.group_size()}, sync);
  if (shape.arguments == nullptr && !ours.entry().argument_sizes.empty())
    return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  return Append(Launch{ours, shape.arguments, shape.groups, *shape.group_size}, sync);
}

ze_result_t CudaCommandList::AppendCopy(void* destination, const void* source, size_t size,
                                        const Sync& sync) {
  return Append(Copy{destination, source, size}, sync);
}

ze_result_t CudaCommandList::AppendFill(void* destination, const void* pattern, size_t pattern_size,
                                        size_t size, const Sync& sync) {
  return Append(Fill{destination, static_cast<const std::byte*>(pattern), pattern_size, size}, sync);
}

ze_result_t CudaCommandList::AppendCopyRegion(const RegionCopy& region, const Sync& sync) {
  return Append(CopyRegion{region}, sync);
}

ze_result_t CudaCommandList::AppendBarrier(const Sync& sync) { return Append(Nothing{}, sync); }

ze_result_t CudaCommandList::AppendEventReset(Event& event) {
  return Append(ResetEvent{static_cast<CudaEvent&>(event).shared_state()}, Sync{});
}

ze_result_t CudaCommandList::AppendWriteTimestamp(uint64_t* destination, const Sync& sync) {
  return Append(WriteTimestamp{destination}, sync);
}

ze_result_t CudaCommandList::AppendQueryTimestamps(std::span<Event* const> events, void* destination,
                                                   const size_t* offsets, const Sync& sync) {
  QueryTimestamps query{{}, {}, static_cast<std::byte*>(destination)};
  for (Event* event : events) query.events.push_back(static_cast<CudaEvent*>(event)->shared_state());
  if (offsets != nullptr) query.offsets.assign(offsets, offsets + events.size());
  return Append(query, sync);
}

ze_result_t CudaCommandList::AppendWriteValue64(uint64_t* address, uint64_t value) {
  return Append(WriteValue64{address, value}, Sync{});
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
