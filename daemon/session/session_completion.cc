// Session's part that has devices announce what they have done, and takes what they announce.
#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "daemon/session/session.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace xpud::session {
namespace {

// An announcement costs an asynchronous device as much as a small kernel. While nobody waits for one, there
// is one for so many commands, or after so long, or after a command that takes long: between two, a device
// that is at work cannot be told from one that hangs.
constexpr uint64_t kMaxUnannounced = 128;
constexpr uint64_t kMaxUnannouncedNs = 100'000;

// A queue of an asynchronous device has about as much under way as others may wait for, and enough to keep it
// busy.
constexpr double kMaxAheadNs = 10e6, kMinInFlight = 8;

}  // namespace

bool Session::ShouldPublish(uint64_t now) const {
  // For a synchronous device it is a store.
  if (queues_[current_queue_].in_flight == nullptr) return true;
  return (client_waits_ && batch_.empty()) || dirty_commands_ >= kMaxUnannounced ||
         now >= dirty_since_ns_ + kMaxUnannouncedNs;
}

absl::Status Session::PublishCompletions() {
  dirty_commands_ = 0;
  client_waits_ = false;
  while (dirty_queues_ != 0) {
    const uint32_t q = static_cast<uint32_t>(std::countr_zero(dirty_queues_));
    dirty_queues_ &= dirty_queues_ - 1;
    Queue& queue = queues_[q];
    if (queue.device_queue == nullptr) continue;
    if (queue.in_flight == nullptr) {
      devices_[queue.device].commands += queue.submitted - queue.written;
      queue.written = queue.submitted;
      RETURN_IF_ERROR(queue.device_queue->WriteValue(transport_->CompletedWord(q), queue.submitted));
      counters_.commands_completed = sequence_;
      continue;
    }
    RETURN_IF_ERROR(Announce(q));
  }
  transport_->WakeClient();
  if (!deferred_.empty()) ReleaseDeferred();
  return absl::OkStatus();
}

absl::Status Session::Announce(uint32_t queue_id) {
  Queue& queue = queues_[queue_id];
  queue.updates = false;
  if (queue.written == queue.submitted) return absl::OkStatus();
  devices_[queue.device].commands += queue.submitted - queue.written;
  queue.written = queue.submitted;
  RETURN_IF_ERROR(queue.device_queue->WriteValue(queue.in_flight->done_word(), queue.submitted));
  queue.announced.push_back(
      {queue.submitted, std::exchange(queue.sent_ns, 0), std::exchange(queue.unannounced, 0)});
  busy_queues_ |= uint64_t{1} << queue_id;
  return absl::OkStatus();
}

// The device lost work of the queue, or could not take it.
void Session::HandleTrouble(uint32_t queue_id) {
  Queue& queue = queues_[queue_id];
  const executor::DeviceQueue::Trouble trouble = queue.device_queue->TakeTrouble();
  if (trouble.error.ok()) return;
  Raise(queue, queue_id, queue.written, trouble.error);
  for (const auto& [address, bytes] : trouble.spoilt) {
    buffers_.ForEach([&, address = address, bytes = bytes](Buffer& buffer) {
      const uint64_t begin = reinterpret_cast<uint64_t>(buffer.block.address);
      if (buffer.device != queue.device || begin == 0 || begin + buffer.bytes <= address ||
          address + bytes <= begin)
        return;
      buffer.poison = Poison::kFresh;
    });
  }
}

void Session::TakeCompletions() {
  uint64_t finished = 0;  // bit q
  const uint64_t now = NowNs();
  for (uint64_t rest = busy_queues_; rest != 0; rest &= rest - 1) {
    const uint32_t q = static_cast<uint32_t>(std::countr_zero(rest));
    Queue& queue = queues_[q];
    const uint64_t done = queue.in_flight->Done();
    if (queue.device_queue->HasTrouble()) [[unlikely]]
      HandleTrouble(q);
    if (done == queue.completed) continue;
    CountTime(queue, done, now);
    queue.device_queue->Completed(done);
    queue.in_flight->Advance(
        done,
        [&](uint64_t sequence, uint64_t word, const std::string& command) {
          RaiseIndexError(queue, q, sequence, word, command);
        },
        [&](const memory::Block& block) { devices_[queue.device].pool->Free(block); });
    queue.completed = done;
    // The number of End's announcement may be that of a client's command, which was not run.
    if (!ending_)
      std::atomic_ref<uint64_t>(*transport_->CompletedWord(q)).store(done, std::memory_order_release);
    counters_.commands_completed = std::max(counters_.commands_completed, done);
    finished |= uint64_t{1} << q;
    if (done != queue.written) continue;
    busy_queues_ &= ~(uint64_t{1} << q);
    CountOccupied(queue.device);
  }
  if (finished == 0) return;
  transport_->WakeClient();
  if (!deferred_.empty()) ReleaseDeferred();
}

void Session::CountTime(Queue& queue, uint64_t done, uint64_t now) {
  uint64_t sent = 0, commands = 0;
  while (!queue.announced.empty() && queue.announced.front().last <= done) {
    const Queue::Work& work = queue.announced.front();
    if (sent == 0) sent = work.sent_ns;
    commands += work.commands;
    queue.announced.pop_front();
  }
  DeviceWork& work = work_[queue.device];
  work.ended_ns = now;
  if (commands == 0) return;
  const uint64_t took = devices_[queue.device].time.Charge(sent, now);
  counters_.busy_ns += took;
  work.used_ns += took;
  queue.under_way -= commands;
  queue.command_ns += (static_cast<double>(took) / static_cast<double>(commands) - queue.command_ns) / 8;
  queue.most_under_way = static_cast<uint64_t>(
      std::clamp<double>(kMaxAheadNs / std::max(queue.command_ns, 1.0), kMinInFlight, kMaxInFlight));
}

// A session that has something under way keeps the device occupied from the first of it on.
void Session::CountOccupied(uint32_t device) {
  for (uint64_t rest = busy_queues_ | dirty_queues_; rest != 0; rest &= rest - 1) {
    if (queues_[std::countr_zero(rest)].device == device) return;
  }
  work_[device].occupied_since_ns = 0;
}

}  // namespace xpud::session
