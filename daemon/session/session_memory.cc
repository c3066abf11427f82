// Session's part that takes memory for buffers and gives it back.
#include <algorithm>
#include <atomic>
#include <bit>

#include "daemon/session/session.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"

namespace xpud::session {

void Session::ChargeMemory(uint32_t device, int64_t bytes) {
  allocated_[device] += static_cast<uint64_t>(bytes);
  uint64_t total = 0;
  for (uint32_t d = 0; d < devices_.size(); ++d) total += allocated_[d];
  stats_.peak_bytes = std::max(stats_.peak_bytes, total);
  transport_->SetAllocatedBytes(device, allocated_[device]);
}

absl::StatusOr<Session::Outcome> Session::Allocate(std::span<const std::byte> bytes) {
  wire::AllocateCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  if (!buffers_.Accepts(command.buffer)) {
    return absl::InvalidArgumentError(
        "a buffer's id is in use or out of order, or its generation does not grow");
  }
  Queue& queue = queues_[current_queue_];
  DeviceState& state = devices_[queue.device];
  const uint64_t used = allocated_[queue.device];
  const bool allowed =
      command.bytes <= state.memory_limit &&
      memory::RoundSize(command.bytes) <= state.memory_limit - std::min(used, state.memory_limit);
  absl::StatusOr<memory::Block> block =
      allowed ? TakeMemory(queue, command.bytes)
              : absl::StatusOr<memory::Block>(ProcessOutOfMemory(command.bytes, queue.device,
                                                                 state.device->properties().total_memory,
                                                                 state.memory_limit, used));
  if (absl::IsUnavailable(block.status())) return Outcome::kStalled;
  Buffer* const buffer = buffers_.Insert(command.buffer);
  buffer->device = queue.device;
  buffer->bytes = command.bytes;
  buffer->queues = uint64_t{1} << current_queue_;  // it may zero the memory
  if (!block.ok()) {
    buffer->poison = Poison::kNoStorage;
    Raise(queue, current_queue_, block.status());
    return Outcome::kDone;
  }
  buffer->block = *block;
  ChargeMemory(queue.device, static_cast<int64_t>(block->bytes));
  return Outcome::kDone;
}

absl::Status Session::Free(std::span<const std::byte> bytes) {
  wire::FreeCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  Buffer* buffer = buffers_.Find(command.buffer);
  if (buffer == nullptr) return absl::InvalidArgumentError("a buffer was freed that does not exist");
  ReleaseBuffer(*buffer);
  return absl::OkStatus();
}

void Session::ReleaseBuffer(Buffer& buffer) {
  if (buffer.block.address != nullptr) {
    ChargeMemory(buffer.device, -static_cast<int64_t>(buffer.block.bytes));
    FreeMemory(buffer);
  }
  buffers_.Erase(buffer);
}

// In the order of the work that uses it.
void Session::FreeMemory(const Buffer& buffer) {
  memory::Pool& pool = *devices_[buffer.device].pool;
  const uint64_t queues = buffer.queues & open_queues_;
  if (shared_[buffer.device].words == nullptr || queues == 0) {
    pool.Free(buffer.block);
    return;
  }
  if (std::has_single_bit(queues)) {
    Queue& queue = queues_[std::countr_zero(queues)];
    if (queue.submitted == queue.completed) {
      pool.Free(buffer.block);
    } else {
      queue.in_flight->Retire(buffer.block, queue.submitted);
    }
    return;
  }
  Defer(queues, buffer.block, buffer.device, nullptr);
}

void Session::Defer(uint64_t queues, const memory::Block& block, uint32_t device,
                    std::shared_ptr<HostMemories::Memory> host) {
  DeferredFree entry{block, device, std::move(host), queues, {}};
  for (uint32_t q = 0; q < wire::kMaxQueues; ++q) entry.marks[q] = queues_[q].submitted;
  deferred_.push_back(std::move(entry));
}

absl::StatusOr<memory::Block> Session::TakePoolMemory(Queue& queue, uint64_t bytes) {
  return devices_[queue.device].pool->Allocate(bytes, peer_.uid + 1, [&](std::byte* address, uint64_t size) {
    return queue.device_queue->Zero(address, size);
  });
}

absl::StatusOr<memory::Block> Session::TakeMemory(Queue& queue, uint64_t bytes) {
  if (queue.in_flight == nullptr) return TakePoolMemory(queue, bytes);
  const bool replaceable = devices_[queue.device].device->properties().replaceable;
  auto reused = queue.in_flight->Reuse(memory::RoundSize(bytes), replaceable ? queue.written : UINT64_MAX);
  if (reused.has_value()) {
    reused->born = sequence_ + 1;
    return *reused;
  }
  auto block = TakePoolMemory(queue, bytes);
  if (block.ok()) block->born = sequence_ + 1;
  if (!absl::IsResourceExhausted(block.status())) return block;
  // What is free may only wait for the device to say so.
  RETURN_IF_ERROR(PublishCompletions());
  if (busy_queues_ != 0) return absl::UnavailableError("memory may become free");
  return block;
}

void Session::ReleaseDeferred() {
  std::erase_if(deferred_, [&](const DeferredFree& entry) {
    for (uint64_t rest = entry.queues & open_queues_; rest != 0; rest &= rest - 1) {
      const uint32_t q = static_cast<uint32_t>(std::countr_zero(rest));
      if (std::atomic_ref<uint64_t>(*transport_->CompletedWord(q)).load(std::memory_order_acquire) <
          entry.marks[q])
        return false;
    }
    if (entry.host == nullptr) devices_[entry.device].pool->Free(entry.block);
    return true;
  });
}

}  // namespace xpud::session
