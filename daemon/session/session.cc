#include "daemon/session/session.h"

#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
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

// Identifies the contents of buffers over all sessions. The engine thread only.
uint64_t NextContent() {
  static uint64_t last = 0;
  return ++last;
}

absl::Status Breach(const char* what) { return absl::InvalidArgumentError(what); }

}  // namespace

Session::Session(uint64_t id, Peer peer, std::unique_ptr<transport::ServerTransport> transport,
                 std::span<DeviceState> devices, uint64_t host_memory_limit, TableSpace& tables)
    : id_(id),
      peer_(std::move(peer)),
      opened_ns_(NowNs()),
      transport_(std::move(transport)),
      devices_(devices),
      buffers_(tables, peer_.tenant),
      host_(id, devices, host_memory_limit) {
  for (uint32_t d = 0; d < devices_.size(); ++d)
    accounts_[d] =
        &devices_[d].pool->ledger().Open(peer_.tenant, transport_->CreditWord(d), transport_->ClaimWord(d));
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
  if (stopped_) FreeWorkspace(queues_[current_queue_]);
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
  client_waits_ |= transport_->TakeWaitRequest() != 0;
  if (batch_.empty()) {
    if (start < slice_ended_ns_ + kStreamPauseNs && !client_waits_) return Progress::kIdle;
    ASSIGN_OR_RETURN(batch_, transport_->Receive());
    if (batch_.empty()) {
      queue_wait_.SawNone(start);
      if (dirty_queues_ != 0 && ShouldPublish(start)) RETURN_IF_ERROR(PublishCompletions());
      client_waits_ = client_waits_ && dirty_queues_ != 0;
      if (!under_way()) SetIdle(true);
      return Progress::kIdle;
    }
    SetIdle(false);
  }
  uint64_t now = start;
  awaits_device_ = false;
  Progress progress = Progress::kWorked;
  const uint64_t first = sequence_, waited = queue_wait_.Begins(start);
  for (int since_look = 1; !batch_.empty() && now - start < slice_ns; ++since_look) {
    wire::CommandHeader header;  // which Receive has checked
    std::memcpy(&header, batch_.data(), sizeof(header));
    Queue& queue = queues_[header.queue];
    if (queue.in_flight != nullptr &&
        (queue.under_way >= queue.most_under_way || !queue.device_queue->ready())) {
      if (sequence_ == first) progress = Progress::kStalled;
      awaits_device_ = true;
      break;
    }
    heavy_ = long_ = false;
    const uint64_t sent = now;
    ASSIGN_OR_RETURN(const Outcome outcome, RunCommand(batch_.first(header.bytes), header));
    if (heavy_ || since_look % kCommandsPerLook == 0) now = NowNs();
    if (outcome != Outcome::kDone) {
      if (outcome == Outcome::kStalled) progress = Progress::kStalled;
      break;
    }
    batch_ = batch_.subspan(header.bytes);
    ++sequence_;
    queue.submitted = sequence_;
    if (dirty_queues_ == 0) dirty_since_ns_ = now;
    dirty_queues_ |= uint64_t{1} << header.queue;
    ++dirty_commands_;
    ++counters_.commands_submitted;
    if (queue.in_flight == nullptr) continue;
    if (queue.sent_ns == 0) queue.sent_ns = sent;
    ++queue.unannounced;
    ++queue.under_way;
    if (uint64_t& since = work_[queue.device].occupied_since_ns; since == 0) since = sent;
    if (long_) RETURN_IF_ERROR(Announce(header.queue));
  }
  if (ShouldPublish(now)) RETURN_IF_ERROR(PublishCompletions());
  Poll();
  now = NowNs();
  slice_began_ns_ = start;
  slice_ended_ns_ = now;
  counters_.queue_wait_ns += waited;
  queue_wait_.Ended(now, batch_.empty()   ? QueueWait::Rest::kNone
                         : awaits_device_ ? QueueWait::Rest::kBehindOwn
                                          : QueueWait::Rest::kWaiting);
  const Queue& last = queues_[current_queue_];
  if (last.in_flight == nullptr) counters_.busy_ns += devices_[last.device].time.Charge(start, now);
  return progress;
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

void Session::Raise(Queue& queue, uint32_t queue_id, uint64_t sequence, const absl::Status& error) {
  ++counters_.errors;
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
  buffers_.ForgiveInPlace();
  return absl::OkStatus();
}

void Session::PoisonSkipped(Buffer& buffer) {
  if (buffer.poison != Poison::kNone) return;
  if (buffer.written) {
    buffers_.PoisonInPlace(buffer);
  } else {
    buffer.poison = Poison::kFresh;
  }
}

void Session::MarkWritten(Buffer& buffer) {
  buffer.written = true;
  buffer.content = NextContent();
  buffer.last_write = sequence_ + 1;
}

}  // namespace xpud::session
