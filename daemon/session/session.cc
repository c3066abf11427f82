#include "daemon/session/session.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "proto/transport/layout.h"

namespace xpud::session {
namespace {

using wire::CommandKind;

// A look at the ring takes its cache line from the client, whose next command must fetch it back. While
// commands stream in, the daemon looks a little less often, so that the client finds the line where it left
// it.
constexpr uint64_t kStreamPauseNs = 3000;
constexpr int kCommandsPerLook = 8;  // light commands between two looks at the clock

// Commands that a queue of an asynchronous device has under way: enough to keep it busy, fewer than a stream
// takes before the append blocks.
constexpr uint64_t kMostUnderWay = 512;
constexpr uint64_t kMostWaitForMemoryNs = 100'000'000;

uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

// Identifies the contents of buffers over all sessions. The engine thread only.
uint64_t NextContent() {
  static uint64_t last = 0;
  return ++last;
}

absl::Status Breach(const char* what) { return absl::InvalidArgumentError(what); }

}  // namespace

Session::Session(uint64_t id, Peer peer, std::unique_ptr<transport::ServerTransport> transport,
                 std::span<DeviceState> devices)
    : id_(id),
      peer_(std::move(peer)),
      opened_ns_(NowNs()),
      transport_(std::move(transport)),
      devices_(devices) {}

absl::Status Session::Open() {
  for (uint32_t d = 0; d < devices_.size(); ++d) {
    if (!devices_[d].device->properties().synchronous) RETURN_IF_ERROR(ShareMemory(d));
    ASSIGN_OR_RETURN(queues_[d].device_queue, devices_[d].device->CreateQueue(0));
    queues_[d].device = d;
    Attach(d);
    open_queues_ |= uint64_t{1} << d;
  }
  return absl::OkStatus();
}

absl::Status Session::ShareMemory(uint32_t device) {
  executor::Device& with = *devices_[device].device;
  for (const std::span<std::byte> memory : {transport_->staging(), transport_->completion_memory()}) {
    ASSIGN_OR_RETURN(auto imported, with.Import(memory));
    if (imported != nullptr) imported_.push_back(std::move(imported));
  }
  ASSIGN_OR_RETURN(words_[device], with.AllocateHost(sizeof(InFlight::Words) * wire::kMaxQueues));
  return absl::OkStatus();
}

void Session::Attach(uint32_t queue_id) {
  Queue& queue = queues_[queue_id];
  if (words_[queue.device] == nullptr) return;
  auto& words = reinterpret_cast<InFlight::Words*>(words_[queue.device]->address())[queue_id];
  words = {};
  queue.in_flight = std::make_unique<InFlight>(words);
}

Session::~Session() {
  for (uint32_t q = 0; q < wire::kMaxQueues; ++q) {
    // A queue that does not finish belongs to a lost device; its memory goes with the process.
    Queue& queue = queues_[q];
    if (queue.device_queue != nullptr) (void)queue.device_queue->Synchronize(10'000'000'000);
    if (queue.in_flight != nullptr)
      queue.in_flight->Drain([&](const memory::Block& block) { devices_[queue.device].pool->Free(block); });
  }
  for (const DeferredFree& entry : deferred_) devices_[entry.device].pool->Free(entry.block);
  buffers_.ForEach([&](Buffer& buffer) {
    if (buffer.block.address != nullptr) devices_[buffer.device].pool->Free(buffer.block);
  });
  for (DeviceState& state : devices_) state.pool->Trim();
}

int Session::queue_count() const { return std::popcount(open_queues_); }

absl::StatusOr<Session::Progress> Session::Run(uint64_t slice_ns) {
  const uint64_t start = NowNs();
  if (busy_queues_ != 0) TakeCompletions();
  if (batch_.empty()) {
    if (start < slice_ended_ns_ + kStreamPauseNs && !transport_->ClientWantsAnswer()) return Progress::kIdle;
    ASSIGN_OR_RETURN(batch_, transport_->Receive());
    if (batch_.empty()) return Progress::kIdle;
  }
  uint64_t now = start;
  Progress progress = Progress::kWorked;
  for (int since_look = 1; !batch_.empty() && now - start < slice_ns; ++since_look) {
    wire::CommandHeader header;
    RETURN_IF_ERROR(wire::DecodeHeader(batch_, header));
    const Queue& queue = queues_[header.queue];
    if (queue.in_flight != nullptr && queue.submitted - queue.completed > kMostUnderWay) break;
    heavy_ = false;
    ASSIGN_OR_RETURN(const Outcome outcome, RunCommand(batch_.first(header.bytes), header));
    if (heavy_ || since_look % kCommandsPerLook == 0) now = NowNs();
    if (outcome == Outcome::kStalled) {
      progress = Progress::kStalled;
      break;
    }
    batch_ = batch_.subspan(header.bytes);
    ++sequence_;
    queues_[header.queue].submitted = sequence_;
    dirty_queues_ |= uint64_t{1} << header.queue;
    ++stats_.submitted;
  }
  RETURN_IF_ERROR(PublishCompletions());
  now = NowNs();
  slice_began_ns_ = start;
  slice_ended_ns_ = now;
  const Queue& last = queues_[current_queue_];
  if (last.in_flight == nullptr) {
    stats_.busy_ns += now - start;
    devices_[last.device].busy_ns += now - start;
  }
  return progress;
}

absl::Status Session::PublishCompletions() {
  while (dirty_queues_ != 0) {
    const uint32_t q = static_cast<uint32_t>(std::countr_zero(dirty_queues_));
    dirty_queues_ &= dirty_queues_ - 1;
    Queue& queue = queues_[q];
    if (queue.device_queue == nullptr) continue;
    devices_[queue.device].commands += queue.submitted - queue.written;
    queue.written = queue.submitted;
    if (queue.in_flight == nullptr) {
      RETURN_IF_ERROR(queue.device_queue->WriteValue(transport_->CompletedWord(q), queue.submitted));
      stats_.completed = sequence_;
      continue;
    }
    RETURN_IF_ERROR(queue.device_queue->WriteValue(queue.in_flight->done_word(), queue.submitted));
    if (busy_queues_ == 0) busy_since_ns_ = NowNs();
    busy_queues_ |= uint64_t{1} << q;
  }
  transport_->WakeClient();
  if (!deferred_.empty()) ReleaseDeferred();
  return absl::OkStatus();
}

void Session::TakeCompletions() {
  uint64_t finished = 0;  // bit q
  uint32_t device = 0;
  for (uint64_t rest = busy_queues_; rest != 0; rest &= rest - 1) {
    const uint32_t q = static_cast<uint32_t>(std::countr_zero(rest));
    Queue& queue = queues_[q];
    const uint64_t done = queue.in_flight->Done();
    if (done == queue.completed) continue;
    queue.in_flight->Advance(
        done,
        [&](uint64_t sequence, uint64_t word, const std::string& command) {
          RaiseIndexError(queue, q, sequence, word, command);
        },
        [&](const memory::Block& block) { devices_[queue.device].pool->Free(block); });
    queue.completed = done;
    std::atomic_ref<uint64_t>(*transport_->CompletedWord(q)).store(done, std::memory_order_release);
    stats_.completed = std::max(stats_.completed, done);
    if (done == queue.written) busy_queues_ &= ~(uint64_t{1} << q);
    finished |= uint64_t{1} << q;
    device = queue.device;
  }
  if (finished == 0) return;
  const uint64_t now = NowNs();
  stats_.busy_ns += now - busy_since_ns_;
  devices_[device].busy_ns += now - busy_since_ns_;
  busy_since_ns_ = now;
  transport_->WakeClient();
  if (!deferred_.empty()) ReleaseDeferred();
}

absl::StatusOr<Session::Outcome> Session::RunCommand(std::span<const std::byte> bytes,
                                                     const wire::CommandHeader& header) {
  current_queue_ = header.queue;
  const bool open = (open_queues_ >> header.queue & 1) != 0;
  if (open == (header.kind == CommandKind::kCreateQueue))
    return Breach(open ? "a queue was created twice" : "a queue does not exist");
  absl::Status status;
  switch (header.kind) {
    case CommandKind::kNop:
      if (bytes.size() != sizeof(wire::NopCommand)) return Breach("a command's size does not fit its kind");
      return Outcome::kDone;
    case CommandKind::kExecute:
      return Execute(bytes, header.queue);
    case CommandKind::kWait:
      return WaitForQueue(bytes);
    case CommandKind::kAllocate:
      status = Allocate(bytes);
      break;
    case CommandKind::kFree:
      status = Free(bytes);
      break;
    case CommandKind::kUpload:
      status = Upload(bytes);
      break;
    case CommandKind::kUploadInline:
      status = UploadInline(bytes);
      break;
    case CommandKind::kDownload:
      status = Download(bytes);
      break;
    case CommandKind::kCopy:
      status = Copy(bytes);
      break;
    case CommandKind::kCreateQueue:
      status = CreateQueue(bytes);
      break;
    case CommandKind::kDestroyQueue:
      status = DestroyQueue(bytes);
      break;
    case CommandKind::kTimestamp:
      status = Timestamp(bytes);
      break;
    case CommandKind::kClearError:
      status = ClearError(bytes);
      break;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("a command of unknown kind ", static_cast<int>(header.kind)));
  }
  if (!status.ok()) return status;
  return Outcome::kDone;
}

// ---- errors and poison

void Session::Raise(Queue& queue, uint32_t queue_id, uint64_t sequence, const absl::Status& error) {
  ++stats_.errors;
  if (queue.error_raised) return;  // the first one is reported; what follows from it is poison
  queue.error_raised = true;
  transport_->RaiseError(queue_id, sequence, error);
}

absl::Status Session::ClearError(std::span<const std::byte> bytes) {
  wire::ClearErrorCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  if (command.errors != transport_->Errors(current_queue_))
    return Breach("an error was cleared that was never raised");
  queues_[current_queue_].error_raised = false;
  queues_[current_queue_].error_word = 0;
  buffers_.ForEach([](Buffer& buffer) {
    if (buffer.poison == Poison::kInPlace) buffer.poison = Poison::kNone;
  });
  return absl::OkStatus();
}

void Session::PoisonSkipped(Buffer& buffer) {
  if (buffer.poison == Poison::kNone) buffer.poison = buffer.written ? Poison::kInPlace : Poison::kFresh;
}

void Session::MarkWritten(Buffer& buffer) {
  buffer.written = true;
  buffer.content = NextContent();
}

// ---- memory

void Session::ChargeMemory(uint32_t device, int64_t bytes) {
  allocated_[device] += static_cast<uint64_t>(bytes);
  uint64_t total = 0;
  for (uint32_t d = 0; d < devices_.size(); ++d) total += allocated_[d];
  stats_.peak_bytes = std::max(stats_.peak_bytes, total);
  transport_->SetAllocatedBytes(device, allocated_[device]);
}

absl::Status Session::Allocate(std::span<const std::byte> bytes) {
  wire::AllocateCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  Buffer* buffer = buffers_.Insert(command.buffer);
  if (buffer == nullptr)
    return Breach("a buffer's id is in use or out of order, or its generation does not grow");
  Queue& queue = queues_[current_queue_];
  DeviceState& state = devices_[queue.device];
  buffer->device = queue.device;
  buffer->bytes = command.bytes;
  const uint64_t used = allocated_[queue.device];
  absl::StatusOr<memory::Block> block = ProcessOutOfMemory(
      command.bytes, queue.device, state.device->properties().total_memory, state.memory_limit, used);
  if (command.bytes <= state.memory_limit &&
      memory::RoundSize(command.bytes) <= state.memory_limit - std::min(used, state.memory_limit)) {
    block = TakeMemory(queue, command.bytes);
    buffer->queues = uint64_t{1} << current_queue_;  // it may zero the memory
  }
  if (!block.ok()) {
    buffer->poison = Poison::kNoStorage;
    Raise(queue, current_queue_, block.status());
    return absl::OkStatus();
  }
  buffer->block = *block;
  ChargeMemory(queue.device, static_cast<int64_t>(block->bytes));
  return absl::OkStatus();
}

absl::Status Session::Free(std::span<const std::byte> bytes) {
  wire::FreeCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  Buffer* buffer = buffers_.Find(command.buffer);
  if (buffer == nullptr) return Breach("a buffer was freed that does not exist");
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
  if (words_[buffer.device] == nullptr || queues == 0) {
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
  DeferredFree entry{buffer.block, buffer.device, queues, {}};
  for (uint32_t q = 0; q < wire::kMaxQueues; ++q) entry.marks[q] = queues_[q].submitted;
  deferred_.push_back(entry);
}

absl::StatusOr<memory::Block> Session::TakePoolMemory(Queue& queue, uint64_t bytes) {
  return devices_[queue.device].pool->Allocate(bytes, peer_.uid + 1, [&](std::byte* address, uint64_t size) {
    return queue.device_queue->Zero(address, size);
  });
}

absl::StatusOr<memory::Block> Session::TakeMemory(Queue& queue, uint64_t bytes) {
  if (queue.in_flight == nullptr) return TakePoolMemory(queue, bytes);
  if (const auto block = queue.in_flight->Reuse(memory::RoundSize(bytes))) return *block;
  auto block = TakePoolMemory(queue, bytes);
  if (block.ok() || !absl::IsResourceExhausted(block.status())) return block;
  // What is free may only wait for the device to say so.
  RETURN_IF_ERROR(PublishCompletions());
  for (uint64_t rest = busy_queues_; rest != 0; rest &= rest - 1)
    (void)queues_[std::countr_zero(rest)].device_queue->Synchronize(kMostWaitForMemoryNs);
  TakeCompletions();
  return TakePoolMemory(queue, bytes);
}

void Session::ReleaseDeferred() {
  std::erase_if(deferred_, [&](const DeferredFree& entry) {
    for (uint64_t rest = entry.queues & open_queues_; rest != 0; rest &= rest - 1) {
      const uint32_t q = static_cast<uint32_t>(std::countr_zero(rest));
      if (std::atomic_ref<uint64_t>(*transport_->CompletedWord(q)).load(std::memory_order_acquire) <
          entry.marks[q])
        return false;
    }
    devices_[entry.device].pool->Free(entry.block);
    return true;
  });
}

// ---- queues and events

absl::Status Session::CreateQueue(std::span<const std::byte> bytes) {
  wire::CreateQueueCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  if (command.device >= devices_.size()) return Breach("a queue names a device that does not exist");
  Queue& queue = queues_[current_queue_];
  ASSIGN_OR_RETURN(queue.device_queue, devices_[command.device].device->CreateQueue(command.priority));
  queue.device = command.device;
  queue.submitted = queue.written = queue.completed = 0;
  Attach(current_queue_);
  open_queues_ |= uint64_t{1} << current_queue_;
  return absl::OkStatus();
}

absl::Status Session::DestroyQueue(std::span<const std::byte> bytes) {
  wire::DestroyQueueCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  if (current_queue_ < devices_.size()) return Breach("a default queue was destroyed");
  Queue& queue = queues_[current_queue_];
  RETURN_IF_ERROR(PublishCompletions());
  RETURN_IF_ERROR(queue.device_queue->Synchronize(UINT64_MAX));
  TakeCompletions();
  if (queue.in_flight != nullptr)
    queue.in_flight->Drain([&](const memory::Block& block) { devices_[queue.device].pool->Free(block); });
  std::atomic_ref<uint64_t>(*transport_->CompletedWord(current_queue_))
      .store(sequence_ + 1, std::memory_order_release);
  queue = Queue{};
  open_queues_ &= ~(uint64_t{1} << current_queue_);
  busy_queues_ &= ~(uint64_t{1} << current_queue_);
  return absl::OkStatus();
}

absl::Status Session::Timestamp(std::span<const std::byte> bytes) {
  wire::TimestampCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  if (command.slot >= wire::kMaxTimestamps) return Breach("a timestamp's slot is out of range");
  Queue& queue = queues_[current_queue_];
  uint64_t* const word = transport_->TimestampWord(command.slot);
  return queue.in_flight == nullptr ? queue.device_queue->WriteValue(word, NowNs())
                                    : queue.device_queue->WriteTimestamp(word);
}

absl::StatusOr<Session::Outcome> Session::WaitForQueue(std::span<const std::byte> bytes) {
  wire::WaitCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  if (command.other >= wire::kMaxQueues || (open_queues_ >> command.other & 1) == 0)
    return Breach("a wait names a queue that does not exist");
  if (command.sequence > queues_[command.other].submitted)
    return Breach("a wait names a command that is not an earlier one of its queue");
  RETURN_IF_ERROR(PublishCompletions());
  const uint64_t done =
      std::atomic_ref<uint64_t>(*transport_->CompletedWord(command.other)).load(std::memory_order_acquire);
  return done >= command.sequence ? Outcome::kDone : Outcome::kStalled;
}

}  // namespace xpud::session
