#include "daemon/gateway/session_relay.h"

#include <grpcpp/grpcpp.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/daemon_gone.h"
#include "proto/base/status_macros.h"

namespace xpud::remote {
namespace {

// Time between frames of progress, if the client does not wait.
constexpr std::chrono::microseconds kProgressInterval{200};
constexpr auto kIdle = std::chrono::seconds(1);  // time without use before unused credit is taken back

using SharedTransport = std::shared_ptr<transport::ClientTransport>;

}  // namespace

SessionRelay::SessionRelay(SharedTransport transport, bool resumable)
    : shared_(std::move(transport)), transport_(*shared_), outbox_(resumable) {}

absl::StatusOr<uint64_t> SessionRelay::Resume(uint64_t received) {
  if (!outbox_.Acknowledge(received))
    return absl::InvalidArgumentError("the client acknowledges frames that were never sent");
  return inbox_.received();
}

absl::StatusOr<SessionRelay::End> SessionRelay::Run(ServerCall& call) {
  pthread_setname_np(pthread_self(), "xpud-session");
  failure_ = absl::OkStatus();
  gone_.store(false);
  stuck_.store(true);  // commands of an earlier stream may remain
  call.SetTaker([this](const grpc::ByteBuffer* message) { return HasArrived(message); });
  SendLoop(call);
  call.AwaitReadEnd();
  if (absl::IsInvalidArgument(failure_)) return failure_;
  return ends_ || !transport_.status().ok() ? End::kOver : End::kLost;
}

bool SessionRelay::HasArrived(const grpc::ByteBuffer* message) {
  absl::StatusOr<bool> whole = absl::CancelledError("the client is gone");
  if (message != nullptr) whole = Take(*message);
  if (whole.ok() && *whole) return true;
  MutexLock lock(mutex_);
  if (whole.ok())
    stuck_.store(true);
  else
    Disconnect(whole.status());
  work_.NotifyAll();
  transport_.LookAgain();
  return false;
}

void SessionRelay::Disconnect(absl::Status why) {
  failure_ = std::move(why);
  gone_.store(true);
}

absl::StatusOr<bool> SessionRelay::Take(const grpc::ByteBuffer& message) {
  ClientFrame frame;
  if (!Parse(message, frame)) return absl::InvalidArgumentError("a message is not a frame of this protocol");
  if (!outbox_.Acknowledge(frame.head.received()))
    return absl::InvalidArgumentError("the client acknowledges frames that were never sent");
  if (!inbox_.Take(frame.head.number())) return absl::InvalidArgumentError("frames are missing or repeated");
  ends_ = frame.head.ends();
  waits_ = frame.head.waits();
  for (const v1::CreditKept& kept : frame.head.kept()) TakeBack(kept);
  RETURN_IF_ERROR(TakePayload(frame));
  return PutCommands();
}

absl::Status SessionRelay::TakePayload(const ClientFrame& frame) {
  SliceReader payload(frame.payload);
  if (frame.head.command_bytes() > payload.left())
    return absl::InvalidArgumentError("the last command is incomplete");
  commands_.resize(frame.head.command_bytes());
  (void)payload.Read(commands_);
  const std::span<std::byte> staging = transport_.staging();
  for (const v1::StagingPart& part : frame.head.staging()) {
    if (part.offset() > staging.size() || part.bytes() > staging.size() - part.offset())
      return absl::InvalidArgumentError("a part of staging is out of range");
    if (!payload.Read(staging.subspan(part.offset(), part.bytes())))
      return absl::InvalidArgumentError("a part of staging is truncated");
  }
  put_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<bool> SessionRelay::PutCommands() {
  missing_ = 0;
  const absl::Status status =
      ForEachCommand(std::span(commands_).subspan(put_),
                     [&](const wire::CommandHeader& header, std::span<const std::byte> command) {
                       std::byte* const space = transport_.Reserve(command.size());
                       if (space == nullptr) {
                         missing_ = command.size();
                         return absl::ResourceExhaustedError("the ring is full");
                       }
                       ++sequence_;
                       RETURN_IF_ERROR(Note(header, command));
                       std::memcpy(space, command.data(), command.size());
                       transport_.Commit(command.size());
                       put_ += command.size();
                       return absl::OkStatus();
                     });
  const bool whole = missing_ == 0;
  if (whole) RETURN_IF_ERROR(status);
  const bool waits = whole && waits_ != 0;
  if (waits) {  // must be set before the daemon can answer
    MutexLock lock(mutex_);
    asked_ = transport::CombineWaits(asked_, waits_);
  }
  if (!commands_.empty()) transport_.Publish();
  if (waits) {
    transport_.RequestAnswer(waits_);
    work_.NotifyAll();
    transport_.LookAgain();  // the writer may be waiting for an earlier request
  }
  return whole;
}

bool SessionRelay::CanPut() {
  return stuck_.load() && (missing_ == 0 || transport_.Reserve(missing_) != nullptr);
}

void SessionRelay::PutRest(ServerCall& call) {
  if (!CanPut()) return;
  const absl::StatusOr<bool> whole = PutCommands();
  if (!whole.ok()) return Disconnect(whole.status());
  if (!*whole) return;
  stuck_.store(false);
  call.ReadOn();
}

absl::Status SessionRelay::Note(const wire::CommandHeader& header, std::span<const std::byte> command) {
  if (header.queue >= queues_in_use_) queues_in_use_ = header.queue + 1;
  last_[header.queue].store(sequence_, std::memory_order_release);
  Awaited awaited = {sequence_, {}};
  if (header.kind == wire::CommandKind::kDownload) {
    awaited.part = StagingOf<wire::DownloadCommand>(command, transport_.staging().size());
  } else if (header.kind == wire::CommandKind::kShare || header.kind == wire::CommandKind::kAttach) {
    return NoteAnswer(header, command);
  } else if (header.kind == wire::CommandKind::kTimestamp &&
             command.size() == sizeof(wire::TimestampCommand)) {
    wire::TimestampCommand stamp;
    std::memcpy(&stamp, command.data(), sizeof(stamp));
    awaited.slot = stamp.slot;
  }
  if (awaited.part.bytes == 0 && awaited.slot >= wire::kMaxTimestamps) return absl::OkStatus();
  MutexLock lock(mutex_);
  awaited_bytes_ += awaited.part.bytes;
  if (awaited_bytes_ > transport_.staging().size())
    return absl::InvalidArgumentError("downloads in flight exceed the staging memory");
  awaited_[header.queue].push_back(awaited);
  return absl::OkStatus();
}

absl::Status SessionRelay::NoteAnswer(const wire::CommandHeader& header, std::span<const std::byte> command) {
  std::array<uint32_t, wire::kAnswerSlots> slots;
  const bool shares = header.kind == wire::CommandKind::kShare;
  if (command.size() != (shares ? sizeof(wire::ShareCommand) : sizeof(wire::AttachCommand)))
    return absl::OkStatus();  // the daemon ends the session
  const size_t offset = shares ? offsetof(wire::ShareCommand, slots) : offsetof(wire::AttachCommand, slots);
  std::memcpy(slots.data(), command.data() + offset, sizeof(slots));
  MutexLock lock(mutex_);
  // The word that says that there is an answer comes last.
  for (size_t i = slots.size(); i-- > 0;) {
    if (slots[i] < wire::kMaxTimestamps) awaited_[header.queue].push_back({sequence_, {}, slots[i]});
  }
  return absl::OkStatus();
}

void SessionRelay::SendLoop(ServerCall& call) {
  const auto is_gone = [&] { return gone_.load() || call.IsCancelled(); };
  const auto interrupt = [&] {
    return is_gone() ? absl::CancelledError("the client is gone") : absl::OkStatus();
  };
  absl::Status status;
  bool connected = SendAgain(call);
  while (status.ok() && connected) {
    status = AwaitFlush(call, interrupt);
    // Also after an error, so that errors reach the client before the end.
    connected = SendChanges(call, status);
  }
  // A client that was told leaves by itself; otherwise it is cut off.
  for (int i = 0; i < 100 && !is_gone() && connected; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (!is_gone()) call.Cancel();
}

bool SessionRelay::SendAgain(ServerCall& call) {
  for (const ServerFrame& frame : outbox_.Kept()) {
    if (!call.Write(Serialize(frame))) return false;
  }
  return true;
}

// Returns false if the stream has ended.
bool SessionRelay::SendChanges(ServerCall& call, const absl::Status& status) {
  if (status.ok() && outbox_.IsFull()) return true;
  ServerFrame frame;
  for (uint32_t q = 0; q < queues_in_use_; ++q) AddQueue(q, frame);
  const bool reads = !frame.payload.empty() || frame.head.timestamps_size() != 0;
  if (reads && !transport_.CheckOpen().ok()) {
    if (status.ok()) return true;  // the next call of AwaitFlush fails
    frame = ServerFrame();         // without downloads and timestamps, which may be zeros
  }
  AddMemory(frame);
  if (!status.ok() && !gone_.load()) {
    frame.head.set_closed(std::string(status.message()));
    frame.head.set_daemon_ended(IsDaemonGone(status));
  }
  const bool counts = frame.head.ByteSizeLong() != 0;
  const uint64_t received = inbox_.received();
  frame.head.set_received(received);
  if (counts)
    outbox_.Number(frame);
  else if (!inbox_.WantsAcknowledgement())
    return true;
  inbox_.Acknowledged(received);
  sent_ = Clock::now();
  return call.Write(Serialize(frame));
}

absl::Status SessionRelay::AwaitFlush(ServerCall& call, const std::function<absl::Status()>& interrupt) {
  while (true) {
    RETURN_IF_ERROR(transport_.CheckOpen());
    PutRest(call);
    const uint64_t asked = Unanswered();
    const bool stuck = stuck_;
    // While the client waits for one milestone, it need not hear of other progress. If commands wait for
    // space in the ring, any progress may free some.
    const auto end = stuck ? std::nullopt : transport::AwaitedMilestone(asked);
    const auto is_due = [&] { return !outbox_.IsFull() && (IsAwaited() || (!end && Changed())); };
    if (is_due()) {
      const auto next_flush = sent_ + kProgressInterval;
      if (IsAwaited() || Clock::now() >= next_flush) return absl::OkStatus();
      if (asked == 0) {
        AwaitRequest(next_flush);
      } else {  // the answer may come before the interval is over
        const auto answered = [&] { return Asked() != asked || IsAwaited() || CanPut(); };
        RETURN_IF_ERROR(transport_.Listen(answered, interrupt, {.until = next_flush, .milestone = {}}));
      }
      continue;
    }
    const auto done = [&] { return Asked() != asked || stuck_ != stuck || CanPut() || is_due(); };
    RETURN_IF_ERROR(transport_.Listen(done, interrupt, {.milestone = MilestoneToReport(end)}));
  }
}

void SessionRelay::AwaitRequest(Clock::time_point until) {
  MutexLock lock(mutex_);
  const uint64_t asked = asked_;
  for (auto rest = until - Clock::now(); asked_ == asked && !CanPut() && !gone_ && rest.count() > 0;
       rest = until - Clock::now())
    work_.WaitFor(mutex_, rest);
}

uint64_t SessionRelay::Asked() {
  MutexLock lock(mutex_);
  return asked_;
}

// A request may cross with the frame that answers it. Then nothing changes afterwards, and the request counts
// as answered.
uint64_t SessionRelay::Unanswered() {
  MutexLock lock(mutex_);
  if (asked_ != 0 && WasReported(asked_)) asked_ = 0;
  return asked_;
}

std::optional<transport::Milestone> SessionRelay::MilestoneToReport(std::optional<transport::Milestone> end) {
  if (!end) return end;
  MutexLock lock(mutex_);
  const std::deque<Awaited>& awaited = awaited_[end->queue];
  if (!awaited.empty()) end->sequence = std::min(end->sequence, awaited.front().sequence);
  return end;
}

bool SessionRelay::IsAwaited() {
  if (inbox_.WantsAcknowledgement()) return true;
  MutexLock lock(mutex_);
  if (transport_.AnsweredReserve() != memory_.answered) return true;
  const std::optional<transport::Milestone> end = transport::AwaitedMilestone(asked_);
  for (uint32_t q = 0; q < queues_in_use_; ++q) {
    if (transport_.Errors(q) != queues_[q].errors) return true;
    const uint64_t completed = transport_.Completed(q);
    if (completed == queues_[q].completed) continue;
    const bool downloaded = !awaited_[q].empty() && awaited_[q].front().sequence <= completed;
    const bool ended = end ? end->queue == q && end->sequence <= completed
                           : asked_ != 0 && completed == last_[q].load(std::memory_order_acquire);
    if (downloaded || ended) return true;
  }
  return false;
}

bool SessionRelay::WasReported(uint64_t asked) const {
  if (const auto end = transport::AwaitedMilestone(asked))
    return queues_[end->queue].completed >= end->sequence;
  for (uint32_t q = 0; q < queues_in_use_; ++q) {
    if (queues_[q].completed != last_[q].load(std::memory_order_acquire)) return false;
  }
  return true;
}

bool SessionRelay::Changed() {
  for (uint32_t q = 0; q < queues_in_use_; ++q) {
    if (transport_.Completed(q) != queues_[q].completed || transport_.Errors(q) != queues_[q].errors)
      return true;
  }
  MutexLock lock(mutex_);
  return MemoryChanged() || IsIdle();
}

bool SessionRelay::MemoryChanged() {
  return transport_.AllocatedBytes() != memory_.allocated ||
         transport_.AnsweredReserve() != memory_.answered ||
         (!memory_.asked_to_return && transport_.Credit() != memory_.credit);
}

// Whether the client has more credit than it uses, and its use has not grown for a while.
bool SessionRelay::IsIdle() const {
  return !memory_.asked_to_return && memory_.credit > memory_.allocated &&
         Clock::now() - memory_.since > kIdle;
}

// Errors are read after the completed sequence, because an error is stored before its command completes.
void SessionRelay::AddQueue(uint32_t queue, ServerFrame& frame) {
  QueueSeen& seen = queues_[queue];
  const uint64_t completed = transport_.Completed(queue);
  const uint32_t errors = transport_.Errors(queue);
  if (completed == seen.completed && errors == seen.errors) return;
  const absl::Status error = errors == seen.errors ? absl::OkStatus() : transport_.LastError(queue);
  // What is no error of a session that has ended may have been emptied.
  if (error.ok() && !transport_.CheckOpen().ok()) return;
  v1::QueueState& state = *frame.head.add_queues();
  state.set_queue(queue);
  state.set_completed(completed);
  if (errors != seen.errors) {
    state.mutable_error()->set_code(static_cast<uint32_t>(error.code()));
    state.mutable_error()->set_message(std::string(error.message()));
  }
  seen = {completed, errors};
  MutexLock lock(mutex_);
  for (std::deque<Awaited>& awaited = awaited_[queue];
       !awaited.empty() && awaited.front().sequence <= completed; awaited.pop_front()) {
    AddDone(awaited.front(), frame);
    awaited_bytes_ -= awaited.front().part.bytes;
  }
}

void SessionRelay::AddDone(const Awaited& done, ServerFrame& frame) {
  if (done.part.bytes != 0) {
    v1::StagingPart& part = *frame.head.add_staging();
    part.set_offset(done.part.offset);
    part.set_bytes(done.part.bytes);
    // A copy: staging is emptied when the session ends, and gRPC may send the frame later.
    frame.payload.emplace_back(transport_.staging().data() + done.part.offset, done.part.bytes);
  } else {
    v1::Timestamp& stamp = *frame.head.add_timestamps();
    stamp.set_slot(done.slot);
    stamp.set_time_ns(transport_.Timestamp(done.slot));
  }
}

// The client may use its known credit without a message. So the relay claims that credit first, and then it
// cannot be taken back. Credit that has not been used for a while is asked back from the client.
void SessionRelay::AddMemory(ServerFrame& frame) {
  MutexLock lock(mutex_);
  const bool lowers_credit = !MemoryChanged() && IsIdle();
  if (!lowers_credit && !MemoryChanged()) return;
  const uint64_t answered = transport_.AnsweredReserve();  // read before the credit that it granted
  const uint64_t credit = lowers_credit ? memory_.allocated : transport_.Credit();
  if (!lowers_credit && !transport_.Claim(credit)) return;  // it was reduced; retry in the next round
  memory_ = {lowers_credit ? memory_.credit : credit,
             transport_.AllocatedBytes(),
             answered,
             memory_.number + 1,
             lowers_credit,
             Clock::now()};
  v1::MemoryState& state = *frame.head.mutable_memory();
  state.set_credit(credit);
  state.set_allocated(memory_.allocated);
  state.set_answered(memory_.answered);
  state.set_number(memory_.number);
  state.set_gives_less(lowers_credit);
  if (const auto refusal = transport_.Refusal()) {
    state.mutable_refusal()->set_scope(static_cast<uint32_t>(refusal->scope));
    state.mutable_refusal()->set_limit(refusal->limit);
    state.mutable_refusal()->set_used(refusal->used);
  }
}

// Does nothing if the client has been granted more since.
void SessionRelay::TakeBack(const v1::CreditKept& kept) {
  MutexLock lock(mutex_);
  if (!memory_.asked_to_return || kept.number() != memory_.number || kept.credit() > memory_.credit) return;
  memory_.credit = kept.credit();
  (void)transport_.Claim(memory_.credit);
}

}  // namespace xpud::remote
