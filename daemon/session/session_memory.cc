// Session's part that takes memory for buffers and gives it back.
#include <algorithm>
#include <atomic>
#include <bit>

#include "daemon/session/session.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"

namespace xpud::session {
namespace {

// Credit beyond what a session asks for: a part of what it holds.
constexpr uint64_t kAheadPart = 8;
constexpr uint64_t kMinAheadBytes = 4 << 20;
constexpr uint64_t kMaxAheadBytes = 512 << 20;

}  // namespace

void Session::ChargeMemory(uint32_t device, int64_t bytes) {
  allocated_[device] += static_cast<uint64_t>(bytes);
  uint64_t total = 0;
  for (uint32_t d = 0; d < devices_.size(); ++d) total += allocated_[d];
  peak_bytes_ = std::max(peak_bytes_, total);
  transport_->SetAllocatedBytes(device, allocated_[device]);
}

absl::StatusOr<Session::Outcome> Session::Allocate(std::span<const std::byte> bytes) {
  wire::AllocateCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  RETURN_IF_ERROR(buffers_.Admit(command.buffer));
  Queue& queue = queues_[current_queue_];
  absl::StatusOr<memory::Block> block = TakeCredited(queue, command.bytes);
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

// Clients ask before they allocate more than their credit, so here it is refused only to those that do not,
// and where memory was taken back from a session that had seemed idle.
absl::StatusOr<memory::Block> Session::TakeCredited(Queue& queue, uint64_t bytes) {
  memory::Ledger& ledger = devices_[queue.device].pool->ledger();
  memory::Ledger::Account& account = *accounts_[queue.device];
  const uint64_t capacity = ledger.capacity(), used = allocated_[queue.device];
  if (bytes > capacity)
    return OutOfMemory(bytes, queue.device, capacity, devices_[queue.device].pool->shortage());
  const uint64_t wanted = used + RoundSize(bytes);
  const uint64_t more = wanted - std::min(wanted, account.credit());
  if (more > 0) {
    if (const auto shortage = ledger.ShortOf(account, more))
      return OutOfMemory(bytes, queue.device, capacity, *shortage);
  }
  auto block = TakeMemory(queue, bytes);
  if (block.ok() && more > 0) ledger.Give(account, more);
  return block;
}

absl::StatusOr<std::optional<MemoryShortage>> Session::Credit(uint32_t device, uint64_t wanted) {
  memory::Pool& pool = *devices_[device].pool;
  memory::Ledger::Account& account = *accounts_[device];
  if (wanted <= account.credit()) return std::nullopt;
  if (wanted > pool.ledger().capacity()) return pool.shortage();
  const uint64_t more = wanted - account.credit();
  // What it asks for is one more block.
  const uint64_t block = wanted - std::min(wanted, allocated_[device]);
  if (pool.ledger().ShortOf(account, more)) {
    pool.ledger().Reclaim();  // the user's other sessions may keep what they do not use
    if (auto shortage = pool.ledger().ShortOf(account, more)) return shortage;
  }
  // A little ahead, so that a session which grows asks seldom.
  const uint64_t ahead = std::min(pool.ledger().Room(account),
                                  more + std::clamp(wanted / kAheadPart, kMinAheadBytes, kMaxAheadBytes));
  if (pool.HasSpare(ahead) && pool.GiveCredit(account, ahead, block).ok()) return std::nullopt;
  absl::Status given = pool.GiveCredit(account, more, block);
  if (given.ok()) return std::nullopt;
  if (absl::IsUnavailable(given)) return given;
  return pool.shortage();
}

absl::StatusOr<Session::Outcome> Session::Reserve(std::span<const std::byte> bytes) {
  wire::ReserveCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  const uint32_t device = queues_[current_queue_].device;
  const absl::StatusOr<std::optional<MemoryShortage>> credit = Credit(device, command.bytes);
  if (!credit.ok()) return Outcome::kStalled;
  const std::optional<MemoryShortage>& refusal = *credit;
  if (refusal && (busy_queues_ | dirty_queues_) != 0) {
    // Its own memory that was freed may only wait for the device.
    RETURN_IF_ERROR(PublishCompletions());
    if (busy_queues_ != 0) return Outcome::kStalled;
  }
  transport_->AnswerReserve(device, sequence_ + 1, refusal);
  transport_->WakeClient();
  return Outcome::kDone;
}

void Session::SetIdle(bool idle) {
  if (idle == idle_) return;
  idle_ = idle;
  for (uint32_t d = 0; d < devices_.size(); ++d) devices_[d].pool->ledger().SetIdle(*accounts_[d], idle);
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
  return devices_[queue.device].pool->Allocate(
      bytes, *accounts_[queue.device],
      [&](std::byte* address, uint64_t size) { return queue.device_queue->Zero(address, size); });
}

absl::StatusOr<memory::Block> Session::TakeMemory(Queue& queue, uint64_t bytes) {
  if (queue.in_flight == nullptr) return TakePoolMemory(queue, bytes);
  const bool replaceable = devices_[queue.device].device->properties().replaceable;
  auto reused = queue.in_flight->Reuse(RoundSize(bytes), replaceable ? queue.written : UINT64_MAX);
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
