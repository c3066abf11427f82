// Session's part that makes and ends queues, and orders them: timestamps, and waits of one for another.
#include <atomic>

#include "daemon/session/session.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace xpud::session {

void Session::Attach(uint32_t queue_id) {
  Queue& queue = queues_[queue_id];
  const executor::HostMemory* const memory = shared_[queue.device].words.get();
  if (memory == nullptr) return;
  auto* const words = reinterpret_cast<InFlight::Words*>(memory->address()) + queue_id;
  *words = {};
  queue.in_flight = std::make_unique<InFlight>(*words, memory->OnDevice(words));
  queue.device_queue->Watch(&words->done);
}

absl::Status Session::CreateQueue(std::span<const std::byte> bytes) {
  wire::CreateQueueCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  if (command.device >= devices_.size())
    return absl::InvalidArgumentError("a queue names a device that does not exist");
  Queue& queue = queues_[current_queue_];
  ASSIGN_OR_RETURN(queue.device_queue, devices_[command.device].device->CreateQueue(command.priority, id_));
  queue.device = command.device;
  queue.submitted = queue.written = queue.completed = 0;
  Attach(current_queue_);
  open_queues_ |= uint64_t{1} << current_queue_;
  return absl::OkStatus();
}

absl::StatusOr<Session::Outcome> Session::DestroyQueue(std::span<const std::byte> bytes) {
  wire::DestroyQueueCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  if (current_queue_ < devices_.size()) return absl::InvalidArgumentError("a default queue was destroyed");
  Queue& queue = queues_[current_queue_];
  RETURN_IF_ERROR(PublishCompletions());
  if ((busy_queues_ >> current_queue_ & 1) != 0) return Outcome::kStalled;
  if (queue.in_flight != nullptr)
    queue.in_flight->Drain([&](const memory::Block& block) { devices_[queue.device].pool->Free(block); });
  std::atomic_ref<uint64_t>(*transport_->CompletedWord(current_queue_))
      .store(sequence_ + 1, std::memory_order_release);
  queue = Queue{};
  open_queues_ &= ~(uint64_t{1} << current_queue_);
  return Outcome::kDone;
}

absl::Status Session::Timestamp(std::span<const std::byte> bytes) {
  wire::TimestampCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  if (command.slot >= wire::kMaxTimestamps)
    return absl::InvalidArgumentError("a timestamp's slot is out of range");
  Queue& queue = queues_[current_queue_];
  uint64_t* const word = transport_->TimestampWord(command.slot);
  return queue.in_flight == nullptr
             ? queue.device_queue->WriteValue(word, NowNs())
             : queue.device_queue->WriteTimestamp(shared_[queue.device].completion->OnDevice(word));
}

absl::StatusOr<Session::Outcome> Session::WaitForQueue(std::span<const std::byte> bytes) {
  wire::WaitCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  if (command.other >= wire::kMaxQueues || (open_queues_ >> command.other & 1) == 0)
    return absl::InvalidArgumentError("a wait names a queue that does not exist");
  if (command.sequence > queues_[command.other].submitted)
    return absl::InvalidArgumentError("a wait names a command that is not an earlier one of its queue");
  RETURN_IF_ERROR(PublishCompletions());
  const uint64_t done =
      std::atomic_ref<uint64_t>(*transport_->CompletedWord(command.other)).load(std::memory_order_acquire);
  return done >= command.sequence ? Outcome::kDone : Outcome::kStalled;
}

}  // namespace xpud::session
