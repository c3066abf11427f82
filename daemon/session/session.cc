#include "daemon/session/session.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/base/checks.h"
#include "proto/base/status_macros.h"
#include "proto/transport/layout.h"

namespace xpud::session {
namespace {

using wire::CommandKind;

// A look at the ring takes its cache line from the client, whose next command must fetch it back. While
// commands stream in, the daemon looks a little less often, so that the client finds the line where it left
// it.
constexpr uint64_t kStreamPauseNs = 5000;
constexpr int kCommandsPerLook = 8;  // light commands between two looks at the clock

// Commands that a queue of an asynchronous device has under way: enough to keep it busy, fewer than a stream
// takes before the append blocks.
constexpr uint64_t kMostUnderWay = 512;
// An announcement costs an asynchronous device as much as a small kernel. While nobody waits for one, there
// is one for so many commands, or after so long, or after a command that takes long: between two, a device
// that is at work cannot be told from one that hangs.
constexpr uint64_t kMostUnannounced = 128;
constexpr uint64_t kLongestUnannouncedNs = 100'000;

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
                 std::span<DeviceState> devices, uint64_t host_memory_limit)
    : id_(id),
      peer_(std::move(peer)),
      opened_ns_(NowNs()),
      transport_(std::move(transport)),
      devices_(devices),
      host_(id, devices, host_memory_limit) {
  for (uint32_t d = 0; d < devices_.size(); ++d)
    accounts_[d] =
        &devices_[d].pool->ledger().Open(peer_.uid, transport_->CreditWord(d), transport_->ClaimWord(d));
}

absl::Status Session::Open() {
  for (uint32_t d = 0; d < devices_.size(); ++d) {
    if (!devices_[d].device->properties().synchronous) RETURN_IF_ERROR(ShareMemory(d));
    ASSIGN_OR_RETURN(queues_[d].device_queue, devices_[d].device->CreateQueue(0, id_));
    queues_[d].device = d;
    Attach(d);
    open_queues_ |= uint64_t{1} << d;
  }
  return absl::OkStatus();
}

absl::Status Session::ShareMemory(uint32_t device) {
  executor::Device& with = *devices_[device].device;
  SharedMemory& shared = shared_[device];
  ASSIGN_OR_RETURN(shared.staging, with.Import(transport_->staging()));
  ASSIGN_OR_RETURN(shared.completion, with.Import(transport_->completion_memory()));
  ASSIGN_OR_RETURN(shared.words, with.AllocateHost(sizeof(InFlight::Words) * wire::kMaxQueues));
  return absl::OkStatus();
}

void Session::Attach(uint32_t queue_id) {
  Queue& queue = queues_[queue_id];
  const executor::HostMemory* const memory = shared_[queue.device].words.get();
  if (memory == nullptr) return;
  auto* const words = reinterpret_cast<InFlight::Words*>(memory->address()) + queue_id;
  *words = {};
  queue.in_flight = std::make_unique<InFlight>(*words, memory->OnDevice(words));
  queue.device_queue->Watch(&words->done);
}

// A last announcement on every queue, whatever was announced before: work of a command that was not finished,
// as the zeroing of its memory, may still be under way.
bool Session::End() {
  batch_ = {};
  for (uint32_t q = 0; q < wire::kMaxQueues && !ending_; ++q) {
    if ((open_queues_ >> q & 1) == 0 || queues_[q].in_flight == nullptr) continue;
    queues_[q].submitted = ++sequence_;
    dirty_queues_ |= uint64_t{1} << q;
  }
  ending_ = true;
  if (!PublishCompletions().ok()) return true;  // a device that takes no work has none under way
  if (busy_queues_ != 0) TakeCompletions();
  return busy_queues_ == 0;
}

void Session::Abandon(uint32_t device) {
  for (uint32_t q = 0; q < wire::kMaxQueues; ++q) {
    if (queues_[q].device != device) continue;
    open_queues_ &= ~(uint64_t{1} << q);
    dirty_queues_ &= ~(uint64_t{1} << q);
    busy_queues_ &= ~(uint64_t{1} << q);
  }
}

Session::~Session() {
  for (Queue& queue : queues_) {
    queue.device_queue.reset();
    if (queue.in_flight != nullptr)
      queue.in_flight->Drain([&](const memory::Block& block) { devices_[queue.device].pool->Free(block); });
  }
  for (const DeferredFree& entry : deferred_) {
    if (entry.host == nullptr) devices_[entry.device].pool->Free(entry.block);
  }
  buffers_.ForEach([&](Buffer& buffer) {
    if (buffer.block.address != nullptr) devices_[buffer.device].pool->Free(buffer.block);
  });
  for (uint32_t d = 0; d < devices_.size(); ++d) {
    devices_[d].pool->ledger().Close(*accounts_[d]);
    devices_[d].pool->Trim();
  }
}

int Session::queue_count() const { return std::popcount(open_queues_); }

absl::StatusOr<Session::Progress> Session::Run(uint64_t slice_ns) {
  const uint64_t start = NowNs();
  if (busy_queues_ != 0) TakeCompletions();
  client_waits_ |= transport_->ClientWantsAnswer();
  if (batch_.empty()) {
    if (start < slice_ended_ns_ + kStreamPauseNs && !client_waits_) return Progress::kIdle;
    ASSIGN_OR_RETURN(batch_, transport_->Receive());
    if (batch_.empty()) {
      if (dirty_queues_ != 0 && ShouldPublish(start)) RETURN_IF_ERROR(PublishCompletions());
      client_waits_ = client_waits_ && dirty_queues_ != 0;
      if (!under_way()) SetIdle(true);
      return Progress::kIdle;
    }
    SetIdle(false);
  }
  uint64_t now = start;
  Progress progress = Progress::kWorked;
  const uint64_t first = sequence_;
  for (int since_look = 1; !batch_.empty() && now - start < slice_ns; ++since_look) {
    wire::CommandHeader header;  // which Receive has checked
    std::memcpy(&header, batch_.data(), sizeof(header));
    const Queue& queue = queues_[header.queue];
    if (queue.in_flight != nullptr &&
        (queue.submitted - queue.completed > kMostUnderWay || !queue.device_queue->ready())) {
      if (sequence_ == first) progress = Progress::kStalled;
      break;
    }
    heavy_ = long_ = false;
    const uint64_t sent = now;
    ASSIGN_OR_RETURN(const Outcome outcome, RunCommand(batch_.first(header.bytes), header));
    if (heavy_ || since_look % kCommandsPerLook == 0) now = NowNs();
    if (outcome == Outcome::kStalled) {
      progress = Progress::kStalled;
      break;
    }
    batch_ = batch_.subspan(header.bytes);
    ++sequence_;
    queues_[header.queue].submitted = sequence_;
    if (dirty_queues_ == 0) dirty_since_ns_ = now;
    dirty_queues_ |= uint64_t{1} << header.queue;
    ++dirty_commands_;
    ++stats_.submitted;
    if (queues_[header.queue].sent_ns == 0) queues_[header.queue].sent_ns = sent;
    if (long_ && queue.in_flight != nullptr) RETURN_IF_ERROR(Announce(header.queue));
  }
  if (ShouldPublish(now)) RETURN_IF_ERROR(PublishCompletions());
  Poll();
  now = NowNs();
  slice_began_ns_ = start;
  slice_ended_ns_ = now;
  const Queue& last = queues_[current_queue_];
  if (last.in_flight == nullptr) stats_.busy_ns += devices_[last.device].time.ChargeAll(start, now);
  return progress;
}

bool Session::ShouldPublish(uint64_t now) const {
  // For a synchronous device it is a store.
  if (queues_[current_queue_].in_flight == nullptr) return true;
  return (client_waits_ && batch_.empty()) || dirty_commands_ >= kMostUnannounced ||
         now >= dirty_since_ns_ + kLongestUnannouncedNs;
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
      stats_.completed = sequence_;
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
  queue.announced.push_back({queue.submitted, std::exchange(queue.sent_ns, 0)});
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
    stats_.completed = std::max(stats_.completed, done);
    if (done == queue.written) busy_queues_ &= ~(uint64_t{1} << q);
    finished |= uint64_t{1} << q;
  }
  if (finished == 0) return;
  transport_->WakeClient();
  if (!deferred_.empty()) ReleaseDeferred();
}

void Session::CountTime(Queue& queue, uint64_t done, uint64_t now) {
  uint64_t sent = 0;
  while (!queue.announced.empty() && queue.announced.front().last <= done) {
    if (sent == 0) sent = queue.announced.front().sent_ns;
    queue.announced.pop_front();
  }
  if (sent != 0) {
    stats_.busy_ns += devices_[queue.device].time.Charge(id_, sent, std::max(sent, queue.finished_ns), now);
  }
  queue.finished_ns = now;
}

absl::StatusOr<Session::Outcome> Session::RunCommand(std::span<const std::byte> bytes,
                                                     const wire::CommandHeader& header) {
  current_queue_ = header.queue;
  const bool open = (open_queues_ >> header.queue & 1) != 0;
  if (Refused(open == (header.kind == CommandKind::kCreateQueue)))
    return Breach(open ? "a queue was created twice" : "a queue does not exist");
  absl::Status status;
  switch (header.kind) {
    case CommandKind::kNop:
      if (Refused(bytes.size() != sizeof(wire::NopCommand)))
        return Breach("a command's size does not fit its kind");
      return Outcome::kDone;
    case CommandKind::kExecute:
      return Execute(bytes, header.queue);
    case CommandKind::kWait:
      return WaitForQueue(bytes);
    case CommandKind::kAllocate:
      return Allocate(bytes);
    case CommandKind::kReserve:
      return Reserve(bytes);
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
    case CommandKind::kReleaseMemory:
      status = ReleaseMemory(bytes);
      break;
    case CommandKind::kCopy:
      status = Copy(bytes);
      break;
    case CommandKind::kCreateQueue:
      status = CreateQueue(bytes);
      break;
    case CommandKind::kDestroyQueue:
      return DestroyQueue(bytes);
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
  buffer.last_write = sequence_ + 1;
}

// ---- queues and events

absl::Status Session::CreateQueue(std::span<const std::byte> bytes) {
  wire::CreateQueueCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  if (command.device >= devices_.size()) return Breach("a queue names a device that does not exist");
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
  if (current_queue_ < devices_.size()) return Breach("a default queue was destroyed");
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
  if (command.slot >= wire::kMaxTimestamps) return Breach("a timestamp's slot is out of range");
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
    return Breach("a wait names a queue that does not exist");
  if (command.sequence > queues_[command.other].submitted)
    return Breach("a wait names a command that is not an earlier one of its queue");
  RETURN_IF_ERROR(PublishCompletions());
  const uint64_t done =
      std::atomic_ref<uint64_t>(*transport_->CompletedWord(command.other)).load(std::memory_order_acquire);
  return done >= command.sequence ? Outcome::kDone : Outcome::kStalled;
}

}  // namespace xpud::session
