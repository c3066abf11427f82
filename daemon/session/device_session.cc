#include "daemon/session/device_session.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/wire/decode.h"

namespace xpud::session {
namespace {

using handles::Buffer;
using stream::Queue;
using wire::CommandKind;

constexpr int kCommandsPerLook = 8;     // light commands between two looks at the clock
constexpr uint64_t kMaxAhead = 256;     // commands that LookAhead looks at: some 50 us
constexpr uint64_t kMaxPrepared = 128;  // kernels that wait to be compiled ahead of calls

absl::Status Breach(const char* what) { return absl::InvalidArgumentError(what); }

absl::Status CheckSlots(const uint32_t (&slots)[wire::kAnswerSlots]) {
  for (const uint32_t slot : slots) {
    if (slot >= wire::kMaxTimestamps) return Breach("an answer's slot is out of range");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceSession>> DeviceSession::Create(
    std::shared_ptr<Session> session, uint32_t device, stream::DeviceState& state,
    std::shared_ptr<transport::ServerTransport> transport, handles::TableSpace& space,
    PriorityClass priority) {
  ASSIGN_OR_RETURN(stream::HostAccess access, stream::HostAccess::Create(*state.device, *transport));
  std::unique_ptr<DeviceSession> made(new DeviceSession(
      std::move(session), device, state, std::move(transport), space, priority, std::move(access)));
  RETURN_IF_ERROR(made->OpenQueue(0));
  return made;
}

DeviceSession::DeviceSession(std::shared_ptr<Session> session, uint32_t device, stream::DeviceState& state,
                             std::shared_ptr<transport::ServerTransport> transport,
                             handles::TableSpace& space, PriorityClass priority, stream::HostAccess access)
    : session_(std::move(session)),
      device_(device),
      state_(state),
      transport_(std::move(transport)),
      access_(std::move(access)),
      priority_(priority),
      meter_(state.device->properties().synchronous, counters_),
      time_(state.time, work_.used_ns, counters_),
      prediction_(state.device->properties().peak, state.usual),
      reader_(*transport_),
      buffers_(space, session_->peer().tenant, session_->id()),
      kernel_owner_(kernels::KernelOwner::Create(session_->peer().tenant.Text())),
      ahead_owner_(kernels::KernelOwner::Create(session_->peer().tenant.Text(), /*is_ahead=*/true)),
      memories_(*state.device, session_->id()),
      errors_(*transport_, counters_),
      lends_(session_->loans(), device),
      borrows_(session_->loans()),
      announcer_(queues_, *transport_, busy_queues_, state.device->properties().synchronous),
      rerun_(stream::Rerun::Create(state.device->properties().replaceable)),
      recorder_(std::make_unique<records::Recorder>(state.device->properties().synchronous)),
      memory_(state, device, session_->peer().tenant, *this, *transport_, queues_, announcer_, *rerun_,
              busy_queues_, lends_),
      ops_(state, buffers_, kernels_, errors_, memory_, *rerun_, *kernel_owner_, lends_),
      copies_(state, *transport_, access_, buffers_, memories_, errors_, memory_, *rerun_, counters_, lends_,
              borrows_) {
  buffers_.ExplainCauses([this](uint32_t cause) { return errors_.ErrorOf(cause); });
  if (state_.merger != nullptr) state_.merger->Add(session_->id(), session_->peer().tenant, *this);
}

DeviceSession::~DeviceSession() {
  if (state_.merger != nullptr) state_.merger->Remove(session_->id());
  CloseQueues();
  state_.shared->SenderEnded(session_->id(), NowNs());
  borrows_.ReturnAll();
  lends_.Drop();
  buffers_.ForEach([&](Buffer& buffer) { memory_.Drop(buffer); });
}

void DeviceSession::SetPriority(PriorityClass priority) {
  priority_ = priority;
  queues_.ForEach(UINT64_MAX, [&](Queue& queue) { queue.device->SetPriority(priority); });
}

absl::Status DeviceSession::OpenQueue(uint32_t id) {
  ASSIGN_OR_RETURN(auto device, state_.device->CreateQueue(priority_, session_->id()));
  queues_.Open(id, std::move(device),
               {state_, *transport_, access_, buffers_, errors_, counters_, work_, time_, prediction_,
                busy_queues_, notes_, lends_});
  return absl::OkStatus();
}

// A last fence on every queue, whatever was fenced before: work of a command that was not finished, like its
// first launches, may still be in flight.
bool DeviceSession::End() {
  if (!EndWork()) return false;
  state_.time.Settle(state_.in_flight_ns);  // nothing is charged to the session later
  return true;
}

bool DeviceSession::EndWork() {
  reader_.Drop();
  counters_.compile_ns = kernel_owner_->compile_ns() + ahead_owner_->compile_ns();
  if (!device_ended_ && !EndDeviceWork()) return false;
  device_ended_ = true;
  borrows_.ReturnAll();  // first: another device may wait for this one as this one waits for it
  return lends_.TakeBack();
}

uint64_t DeviceSession::LostQueues() {
  uint64_t lost = 0;
  queues_.ForEach(UINT64_MAX,
                  [&](const Queue& queue) { lost |= uint64_t{queue.device->is_lost()} << queue.id; });
  return lost;
}

bool DeviceSession::EndDeviceWork() {
  const uint64_t lost = LostQueues();
  absl::Status fenced;
  if (!std::exchange(ending_, true))
    queues_.ForEach(~lost, [&](Queue& queue) { fenced.Update(queue.completion->LastFence(++sequence_)); });
  fenced.Update(announcer_.Announce());
  if (!fenced.ok()) {  // the device takes no work; what it has ends with its queues
    CloseQueues();
    return true;
  }
  busy_queues_ &= ~lost;
  Poll();
  return busy_queues_ == 0;
}

void DeviceSession::CloseQueues() {
  ops_.Drop();
  queues_.ForEach(UINT64_MAX, [&](Queue& queue) { queues_.Close(queue.id); });
  busy_queues_ = 0;
}

void DeviceSession::Abandon() {
  const absl::Status error =
      absl::AbortedError("the daemon closed a session while it wrote memory that it shares");
  memory_.SpoilUnfinished(buffers_, LostQueues(), {errors_.Number(error), 0});
}

void DeviceSession::SettleLoans() {
  borrows_.Settle(*this);
  if (!lends_.Settle(*this)) return;
  transport_->Awake();  // the other lane has rung
  progress_ns_ = NowNs();
  if (memory_.has_deferred()) memory_.ReleaseDeferred();
}

void DeviceSession::Poll() {
  if (!lends_.empty()) SettleLoans();
  if (busy_queues_ == 0) return;
  const uint64_t now = NowNs();
  bool progress = false;
  queues_.ForEach(busy_queues_, [&](Queue& queue) {
    if (!queue.completion->Poll(now)) return;
    progress = true;
    if (recorder_ != nullptr) recorder_->Completed(queue.id, queue.completion->completed(), now);
  });
  if (!progress) return;
  progress_ns_ = now;
  if (!lends_.empty() || !borrows_.empty()) SettleLoans();
  // From the first to the last command in flight, the session keeps the device occupied.
  if (!announcer_.IsUnderWay()) work_.occupied_since_ns = 0;
  transport_->WakeClient();
  if (memory_.has_deferred()) memory_.ReleaseDeferred();
}

void DeviceSession::TakeTimes() {
  queues_.ForEach(UINT64_MAX, [&](Queue& queue) {
    for (const executor::WorkTime& time : queue.device->TakeTimes()) recorder_->Timed(queue.id, time);
  });
}

absl::Status DeviceSession::Announce() {
  RETURN_IF_ERROR(announcer_.Announce());
  if (memory_.has_deferred()) memory_.ReleaseDeferred();
  return absl::OkStatus();
}

absl::StatusOr<DeviceSession::Progress> DeviceSession::RestIdle(uint64_t now_ns) {
  meter_.SawNone(now_ns);
  if (announcer_.has_unannounced() && announcer_.IsDue(now_ns, /*more=*/false)) RETURN_IF_ERROR(Announce());
  announcer_.SawNoCommands();
  awaits_device_ = awaits_peer_ = false;
  if (!under_way()) memory_.SetIdle(true);
  return Progress::kIdle;
}

absl::StatusOr<bool> DeviceSession::HoldBack(uint64_t now_ns, bool waits) {
  meter_.HeldBack();
  awaits_device_ = awaits_peer_ = false;
  const bool has_commands = !reader_.empty() || transport_->HasCommands();
  tenant_waits_ = waits && has_commands;
  // What it has on the device ends meanwhile.
  if (transport_->TakeWaitRequest() != 0) announcer_.ClientWaits();
  if (announcer_.has_unannounced() && announcer_.IsDue(now_ns, has_commands)) RETURN_IF_ERROR(Announce());
  return has_commands;
}

absl::StatusOr<DeviceSession::Progress> DeviceSession::Run(uint64_t slice_ns,
                                                           const stream::InFlightWindow& window) {
  const uint64_t start = NowNs();
  counters_.compile_ns = kernel_owner_->compile_ns() + ahead_owner_->compile_ns();
  if (std::exchange(tenant_waits_, false)) progress_ns_ = start;
  Poll();
  if (transport_->TakeWaitRequest() != 0) announcer_.ClientWaits();
  const bool looks = reader_.empty();
  if (looks) {
    if (!CommandReader::Looks(start - meter_.ended_ns(), announcer_.client_waits())) return Progress::kIdle;
    ASSIGN_OR_RETURN(const bool any, reader_.Fill());
    if (!any) return RestIdle(start);
    if (!announcer_.IsUnderWay()) progress_ns_ = start;
    memory_.SetIdle(false);
  }
  work_.waited_ns = meter_.Begin(start);
  helped_ns_ = 0;
  if (looks) recorder_->Arrived(start - work_.waited_ns);
  uint64_t now = start;
  ASSIGN_OR_RETURN(const Progress progress, RunCommands(now, slice_ns, window));
  if (meter_.ran() != 0) progress_ns_ = now;
  if (announcer_.IsDue(now, !reader_.empty())) RETURN_IF_ERROR(Announce());
  Poll();
  now = NowNs();
  meter_.End(now, reader_.empty()                  ? QueueWait::Rest::kNone
                  : awaits_device_ || awaits_peer_ ? QueueWait::Rest::kBehindOwn
                                                   : QueueWait::Rest::kWaiting);
  if (progress == Progress::kWorked && queues_.IsOpen(current_queue_))
    queues_[current_queue_].completion->ChargeTurn(start, now);
  counters_.busy_ns += helped_ns_;
  return progress;
}

absl::StatusOr<DeviceSession::Progress> DeviceSession::RunCommands(uint64_t& now_ns, uint64_t slice_ns,
                                                                   const stream::InFlightWindow& window) {
  const uint64_t start = now_ns;
  const bool timed = recorder_->profiling(start);
  awaits_device_ = awaits_peer_ = false;
  for (int since_look = 1; !reader_.empty() && now_ns - start < slice_ns; ++since_look) {
    const wire::CommandHeader header = reader_.Header();
    const Queue* const queue = queues_.Find(header.queue);
    if (queue != nullptr && !(work_.HasRoom(window) && queue->completion->HasRoom())) {
      awaits_device_ = true;
      return meter_.ran() == 0 ? Progress::kStalled : Progress::kWorked;
    }
    Prepare(header, timed);
    const uint64_t sent = now_ns;
    ASSIGN_OR_RETURN(const Outcome outcome, RunCommand(header));
    helped_ns_ += std::exchange(command_.helped_ns, 0);
    if (command_.heavy || since_look % kCommandsPerLook == 0) now_ns = NowNs();
    if (outcome == Outcome::kStalled) {
      RETURN_IF_ERROR(Stalled());
      return Progress::kStalled;
    }
    if (outcome != Outcome::kDone) return Progress::kWorked;
    reader_.Pop(header);
    const Queue* const ran = queues_.Find(header.queue);  // it may have been made, or destroyed
    if (timed) [[unlikely]]
      NoteWork(queue == ran ? ran : nullptr);
    ++sequence_;
    ++counters_.commands_submitted;
    if (command_.launches != nullptr) counters_.kernels += command_.launches->size();
    recorder_->Note(command_, now_ns);
    meter_.Ran(now_ns);
    if (ran == nullptr) continue;
    announcer_.Submitted(header.queue, now_ns);
    RETURN_IF_ERROR(ran->completion->Submitted(sequence_, sent, command_.takes_long));
    if (header.kind == CommandKind::kLend || header.kind == CommandKind::kCopyFrom) SettleLoans();
  }
  return Progress::kWorked;
}

void DeviceSession::NoteWork(const Queue* queue) {
  command_.end_of_work = queue != nullptr ? queue->device->appended() : command_.first_work;
  command_.memory_bytes = memory_.allocated_bytes();
}

// Begins a command, or goes on with one that was stalled or stopped.
void DeviceSession::Prepare(const wire::CommandHeader& header, bool timed) {
  if (command_.sequence != sequence_ + 1) {
    command_ = {};
    command_.sequence = sequence_ + 1;
    command_.header = header;
  }
  command_.heavy = false;
  command_.timed = timed;
  command_.takes_long = false;
  if (!timed) return;
  const Queue* const queue = queues_.Find(header.queue);
  // Then its end is reported by itself.
  command_.takes_long = queue == nullptr || !queue->device->times_work();
  if (command_.decoded_ns != 0) return;
  command_.published_ns = reader_.PublishedNs();
  command_.decoded_ns = NowNs();
  if (queue != nullptr) command_.first_work = queue->device->appended();
}

DeviceSession::WaitState DeviceSession::wait_state() const {
  WaitState state{.has_commands = !reader_.empty(), .device_works = announcer_.IsUnderWay()};
  if (!state.has_commands && !state.device_works) return state;
  if (tenant_waits_ && !state.device_works) return state;
  state.since_ns = progress_ns_;
  if (!state.has_commands) return state;
  if (awaits_device_) {
    state.stall = records::Stall::kDevice;
  } else if (command_.sequence == sequence_ + 1) {
    state.stall = command_.stall;
    state.row = command_.row;
  }
  return state;
}

absl::StatusOr<DeviceSession::Outcome> DeviceSession::RunCommand(const wire::CommandHeader& header) {
  const Bytes bytes = reader_.Front(header);
  if (header.queue >= wire::kMaxQueues) return Breach("a queue's id is out of range");
  const bool open = queues_.IsOpen(header.queue);
  if (open == (header.kind == CommandKind::kCreateQueue))
    return Breach(open ? "a queue was created twice" : "a queue does not exist");
  current_queue_ = header.queue;
  Queue& queue = queues_[header.queue];
  const auto done = [](const absl::Status& status) -> absl::StatusOr<Outcome> {
    if (!status.ok()) return status;
    return Outcome::kDone;
  };
  const auto copied = [&](const absl::StatusOr<Outcome>& outcome) {
    if (command_.timed && outcome.ok() && *outcome == Outcome::kDone)
      command_.Launched(command_.decoded_ns, NowNs());
    return outcome;
  };
  switch (header.kind) {
    case CommandKind::kNop:
      if (bytes.size() != sizeof(wire::NopCommand)) return Breach("a command's size does not fit its kind");
      return Outcome::kDone;
    case CommandKind::kExecute:
      return ops_.Run(bytes, queue, command_);
    case CommandKind::kAllocate:
      return Allocate(bytes, queue);
    case CommandKind::kFree:
      return Free(bytes);
    case CommandKind::kReserve:
      return Reserve(bytes);
    case CommandKind::kUpload:
      return copied(copies_.Upload(bytes, queue, command_));
    case CommandKind::kUploadInline:
      return copied(copies_.UploadInline(bytes, queue, command_));
    case CommandKind::kDownload:
      return copied(copies_.Download(bytes, queue, command_));
    case CommandKind::kCopy:
      return copied(copies_.Copy(bytes, queue, command_));
    case CommandKind::kReleaseMemory:
      return ReleaseMemory(bytes);
    case CommandKind::kCreateQueue:
      return CreateQueue(bytes, header.queue);
    case CommandKind::kDestroyQueue:
      return DestroyQueue(bytes, queue);
    case CommandKind::kTimestamp:
      return Timestamp(bytes, queue);
    case CommandKind::kWait:
      return Wait(bytes);
    case CommandKind::kClearError:
      return ClearError(bytes, queue);
    case CommandKind::kRange:
      return done(wire::DecodeRange(bytes, command_.range));
    case CommandKind::kDefineKernel:
      return DefineKernel(bytes, queue);
    case CommandKind::kForgetKernel:
      return ForgetKernel(bytes);
    case CommandKind::kPrepareKernel:
      return PrepareKernel(bytes);
    case CommandKind::kShare:
      return Share(bytes, queue);
    case CommandKind::kAttach:
      return Attach(bytes);
    case CommandKind::kLend:
      return copied(copies_.Lend(bytes, queue, command_));
    case CommandKind::kCopyFrom:
      return copied(CopyFrom(bytes, queue));
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("a command of unknown kind ", static_cast<int>(header.kind)));
  }
}

absl::StatusOr<DeviceSession::Outcome> DeviceSession::Allocate(Bytes bytes, Queue& queue) {
  wire::AllocateCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  RETURN_IF_ERROR(buffers_.Admit(command.buffer));
  absl::StatusOr<memory::Block> block = memory_.Allocate(queue, command_.sequence, command.bytes);
  if (absl::IsUnavailable(block.status())) return Stalls(records::Stall::kMemory);
  Buffer* const buffer = buffers_.Insert(command.buffer);
  buffer->bytes = command.bytes;
  buffer->queues = uint64_t{1} << queue.id;  // it may zero the memory
  if (block.ok()) {
    buffer->own.block = *block;
  } else {
    buffer->own.SetPoison(memory::Poison::kNoStorage,
                          errors_.Raise(queue.id, command_.sequence, block.status()));
  }
  return Outcome::kDone;
}

absl::StatusOr<DeviceSession::Outcome> DeviceSession::Free(Bytes bytes) {
  wire::FreeCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  Buffer* buffer = buffers_.Find(command.buffer);
  if (buffer == nullptr) return Breach("a buffer was freed that does not exist");
  memory_.Free(*buffer);
  buffers_.Erase(*buffer);
  return Outcome::kDone;
}

absl::StatusOr<DeviceSession::Outcome> DeviceSession::Reserve(Bytes bytes) {
  wire::ReserveCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  const absl::StatusOr<std::optional<MemoryShortage>> shortage = memory_.Credit(command.bytes);
  if (!shortage.ok()) return Stalls(records::Stall::kMemory);
  const bool awaits_copies = !lends_.empty() && memory_.has_deferred();
  if (*shortage && (announcer_.IsUnderWay() || awaits_copies)) {
    // The session's own memory that was freed may only wait for the device, or for another one that copies
    // it.
    RETURN_IF_ERROR(Announce());
    if (busy_queues_ != 0 || awaits_copies) return Stalls(records::Stall::kMemory);
  }
  transport_->AnswerReserve(command_.sequence, *shortage);
  transport_->WakeClient();
  return Outcome::kDone;
}

DeviceSession::Outcome DeviceSession::Answer(const uint32_t (&slots)[wire::kAnswerSlots], wire::Answer answer,
                                             std::array<uint64_t, wire::kAnswerSlots - 1> words) {
  const auto store = [&](uint32_t slot, uint64_t word) {
    std::atomic_ref<uint64_t>(*transport_->TimestampWord(slot)).store(word, std::memory_order_release);
  };
  for (size_t i = 0; i < words.size(); ++i) store(slots[i + 1], words[i]);
  store(slots[0], wire::AnswerOf(command_.sequence, answer));
  transport_->WakeClient();
  return Outcome::kDone;
}

// A queue that was destroyed had completed everything; one that was made since has its own, later, sequences.
bool DeviceSession::HasCompleted(const memory::Mark& mark) const {
  if (!queues_.IsOpen(mark.queue)) return true;
  const stream::Completion& completion = *queues_[mark.queue].completion;
  if (completion.completed() >= mark.sequence) return true;
  const bool has_begun = (ops_.stopped() != nullptr && mark.sequence == command_.sequence) ||
                         memory_.has_copied_for(mark.sequence);
  return completion.submitted() < mark.sequence && !has_begun;
}

std::vector<memory::Mark> DeviceSession::Unfinished() {
  std::vector<memory::Mark> marks;
  for (uint32_t id = 0; id < wire::kMaxQueues; ++id) {
    const Queue* const queue = queues_.Find(id);
    if (queue == nullptr) continue;
    const stream::Completion& completion = *queue->completion;
    const bool has_copies = id == current_queue_ && command_.sequence > completion.submitted() &&
                            memory_.has_copied_for(command_.sequence);
    if (queue == ops_.stopped() || has_copies)
      marks.push_back({id, command_.sequence});
    else if (completion.completed() < completion.submitted())
      marks.push_back({id, completion.submitted()});
  }
  return marks;
}

absl::Status DeviceSession::Stalled() {
  if (command_.stall == records::Stall::kMovedOut) return AwaitMemory();
  const bool awaits_unmapping =
      command_.stall == records::Stall::kMemory && state_.pool->residency().AwaitsPeers();
  const bool copies =
      command_.header.kind == CommandKind::kLend || command_.header.kind == CommandKind::kCopyFrom;
  if (lends_.empty() && !awaits_unmapping && !copies) return absl::OkStatus();
  awaits_peer_ = true;
  return Announce();  // the other device may wait for this one
}

absl::Status DeviceSession::AwaitMemory() {
  awaits_peer_ = true;
  if (std::exchange(looked_ahead_, command_.sequence) != command_.sequence) LookAhead();
  return Announce();  // what is under way may use what must leave for it
}

void DeviceSession::LookAhead() {
  const auto uses = [&](wire::Handle handle, uint64_t ahead) {
    const Buffer* const buffer = buffers_.Find(handle);
    if (buffer == nullptr || buffer->allocation().block.address == nullptr) return;
    memory_.Expect(buffer->allocation().block, ahead);
  };
  CommandReader::Ahead ahead = reader_.LookAhead();
  for (uint64_t i = 0; i < kMaxAhead && !ahead.empty(); ++i) {
    const auto [header, bytes] = ahead.Take();
    if (header.kind == CommandKind::kExecute) {
      if (!wire::DecodeExecute(bytes, ahead_).ok()) return;  // a breach, in its turn
      for (uint32_t j = 0; j < ahead_.outputs + ahead_.inputs; ++j) {
        const wire::DecodedOperand& operand = ahead_.operands[j];
        if (operand.kind == wire::OperandKind::kTensor) uses(operand.buffer, i);
      }
    } else if (header.kind == CommandKind::kUpload) {
      wire::UploadCommand upload;
      if (wire::DecodeFixed(bytes, upload).ok()) uses(upload.buffer, i);
    }
  }
}

absl::StatusOr<DeviceSession::Outcome> DeviceSession::PartShared(Buffer& buffer, Queue& queue) {
  ASSIGN_OR_RETURN(const bool awaits, memory_.AwaitsCopy(buffer, queue));
  if (awaits) return Stalls(records::Stall::kQueue);
  absl::Status taken = memory_.TakeOwn(queue, command_.sequence, buffer, /*fills=*/false);
  if (absl::IsUnavailable(taken)) return Stalls(records::Stall::kMemory);
  RETURN_IF_ERROR(taken);
  if (memory_.partings().empty()) return Outcome::kDone;
  if (memory_.is_watched()) {
    const memory::Residency::Operand blocks[] = {{buffer.own.block.address, /*writes=*/false},
                                                 {memory_.partings().front().own.address, /*writes=*/true}};
    const auto held = memory_.Hold(queue, command_.sequence, blocks);
    if (!held.ok() || !*held) memory_.ForgetPartings(queue, command_.sequence);
    if (!held.ok()) return held.status();
    if (!*held) return Stalls(records::Stall::kMovedOut);
  }
  buffer.queues |= uint64_t{1} << queue.id;
  RETURN_IF_ERROR(memory_.Part(queue, command_.sequence));
  return Outcome::kDone;
}

absl::StatusOr<DeviceSession::Outcome> DeviceSession::Share(Bytes bytes, Queue& queue) {
  wire::ShareCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  RETURN_IF_ERROR(CheckSlots(command.slots));
  Buffer* const buffer = buffers_.Find(command.buffer);
  if (buffer == nullptr) return Breach("a buffer was shared that does not exist");
  command_.heavy = true;
  if (buffer->bytes == 0 || buffer->own.block.address == nullptr)
    return Answer(command.slots, wire::Answer::kNoMemory);
  memory::SharedMemory& shared = *state_.shared;
  if (!shared.MayIssue(session_->peer().tenant))
    return Answer(command.slots, wire::Answer::kTicketLimit, {memory::SharedMemory::kMaxTickets});
  if (buffer->own.is_merged) {
    absl::StatusOr<Outcome> parted = PartShared(*buffer, queue);
    if (absl::IsResourceExhausted(parted.status())) return Answer(command.slots, wire::Answer::kNoMemory);
    if (!parted.ok() || *parted != Outcome::kDone) return parted;
  }
  RETURN_IF_ERROR(Announce());  // the other session waits for what is in flight
  if (!buffer->own.is_shared) {
    const memory::Block block = buffer->own.block;
    buffers_.Share(*buffer, shared.Share(session_->peer().tenant, buffer->own, buffer->bytes));
    memory_.Shared(block);
    queues_.ForEach(buffer->queues, [&](Queue& used) { used.completion->BecameShared(*buffer); });
  }
  std::vector<memory::SharedMemory::Mark> marks;
  queues_.ForEach(buffer->queues, [&](Queue& used) {
    const stream::Completion& completion = *used.completion;
    if (completion.completed() < completion.submitted()) marks.push_back({used.id, completion.submitted()});
  });
  // The copy to its own block belongs to this command.
  if (memory_.has_copied_for(command_.sequence)) marks.push_back({queue.id, command_.sequence});
  memory::SharedAllocation& memory = *buffer->own.block.shared;
  const memory::SharedMemory::Ticket ticket = shared.Issue(memory, session_->id(), *this, std::move(marks));
  return Answer(command.slots, wire::Answer::kDone, {ticket[0], ticket[1], memory.id});
}

absl::StatusOr<DeviceSession::Outcome> DeviceSession::Attach(Bytes bytes) {
  wire::AttachCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  RETURN_IF_ERROR(CheckSlots(command.slots));
  const bool gives_back = command.buffer.id == 0 && command.buffer.generation == 0;
  if (!gives_back) RETURN_IF_ERROR(buffers_.Admit(command.buffer));
  command_.heavy = true;
  memory::SharedMemory& shared = *state_.shared;
  const memory::SharedMemory::Ticket ticket = {command.ticket[0], command.ticket[1]};
  const memory::SharedMemory::Issued* const issued = shared.Find(ticket, session_->peer().tenant);
  if (gives_back) {
    if (issued == nullptr) return Answer(command.slots, wire::Answer::kNoTicket);
    shared.Drop(shared.Take(ticket));
    return Answer(command.slots, wire::Answer::kDone);
  }
  std::optional<MemoryShortage> shortage;
  if (issued != nullptr) {
    if (!shared.IsReady(*issued)) {
      RETURN_IF_ERROR(Announce());  // it may be this session's own
      awaits_peer_ = true;
      return Stalls(records::Stall::kSharer);
    }
    shortage = memory_.Attach(*issued->allocation);
  }
  Buffer* const buffer = buffers_.Insert(command.buffer);
  if (issued == nullptr || shortage) {
    const absl::Status error =
        absl::FailedPreconditionError("a buffer names shared memory that it did not get");
    buffer->own.SetPoison(memory::Poison::kNoStorage,
                          {errors_.Number(error), static_cast<uint8_t>(current_queue_)});
    if (issued == nullptr) return Answer(command.slots, wire::Answer::kNoTicket);
    return Answer(command.slots, wire::Answer::kBeyondQuota, {shortage->limit, shortage->used});
  }
  memory::SharedAllocation& memory = shared.Take(ticket);
  buffer->bytes = memory.bytes;
  buffer->Name(memory);
  return Answer(command.slots, wire::Answer::kDone, {memory.bytes});
}

absl::StatusOr<DeviceSession::Outcome> DeviceSession::CopyFrom(Bytes bytes, Queue& queue) {
  wire::CopyFromCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  const std::optional<uint32_t> lane = session_->LaneOf(command.source);
  if (!lane || lane == device_ || !session_->IsOpen(*lane))
    return Breach("a copy names a device that the session has not opened, or its own one");
  const bool waited = awaited_loan_ == command_.sequence;
  ASSIGN_OR_RETURN(const Outcome outcome, copies_.CopyFrom(command, *lane, queue, command_));
  if (outcome == Outcome::kStalled)
    awaited_loan_ = command_.sequence;
  else if (waited)
    transport_->Awake();  // the other lane has rung
  return outcome;
}

absl::StatusOr<DeviceSession::Outcome> DeviceSession::ReleaseMemory(Bytes bytes) {
  wire::ReleaseMemoryCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  std::shared_ptr<handles::DeviceHostMemories::Access> memory = memories_.Release(command.memory);
  if (memory == nullptr) return Breach("host memory was released that is not shared");
  if (const uint64_t queues = memory->queues & queues_.open(); queues != 0)
    memory_.Defer(queues, std::move(memory));
  return Outcome::kDone;
}

absl::StatusOr<DeviceSession::Outcome> DeviceSession::DefineKernel(Bytes bytes, const Queue& queue) {
  wire::DefineKernelCommand command;
  std::string_view definition, name;
  RETURN_IF_ERROR(wire::DecodeDefineKernel(bytes, command, definition, name));
  RETURN_IF_ERROR(kernels_.Admit(command.kernel));
  const handles::KernelTable::Kernel& kernel = kernels_.Define(command.kernel, definition, name);
  command_.heavy = true;
  if (kernel.refusal.ok()) return Outcome::kDone;
  command_.refused = true;
  errors_.Raise(queue.id, command_.sequence,
                absl::Status(kernel.refusal.code(),
                             absl::StrCat("loop kernel ", kernel.name, ": ", kernel.refusal.message())));
  return Outcome::kDone;
}

// No earlier call refers to the kernel: a call does so only until its command has run.
absl::StatusOr<DeviceSession::Outcome> DeviceSession::ForgetKernel(Bytes bytes) {
  wire::ForgetKernelCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  RETURN_IF_ERROR(kernels_.Forget(command.kernel));
  return Outcome::kDone;
}

absl::StatusOr<DeviceSession::Outcome> DeviceSession::PrepareKernel(Bytes bytes) {
  RETURN_IF_ERROR(wire::DecodePrepareKernel(bytes, prepare_));
  const handles::KernelTable::Kernel* const kernel = kernels_.Find(prepare_.kernel);
  if (kernel == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("loop kernel ", prepare_.kernel, " was prepared, which is not defined"));
  }
  if (!kernel->refusal.ok() || ahead_owner_->pending() >= kMaxPrepared) return Outcome::kDone;
  command_.heavy = true;
  const auto call = kernel->calls->Find(prepare_.sizes, prepare_.elements);
  if (call.ok())
    state_.library->Prepare(**call, ahead_owner_.get());  // else the call is refused, and says why
  return Outcome::kDone;
}

absl::StatusOr<DeviceSession::Outcome> DeviceSession::CreateQueue(Bytes bytes, uint32_t id) {
  wire::CreateQueueCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  RETURN_IF_ERROR(OpenQueue(id));
  return Outcome::kDone;
}

absl::StatusOr<DeviceSession::Outcome> DeviceSession::DestroyQueue(Bytes bytes, Queue& queue) {
  wire::DestroyQueueCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  if (queue.id == 0) return Breach("a default queue was destroyed");
  RETURN_IF_ERROR(Announce());
  if ((busy_queues_ >> queue.id & 1) != 0) return Stalls(records::Stall::kQueue);
  queues_.Close(queue.id);
  errors_.Forget(queue.id);
  std::atomic_ref<uint64_t>(*transport_->CompletedWord(queue.id))
      .store(command_.sequence, std::memory_order_release);
  counters_.commands_completed = std::max(counters_.commands_completed, command_.sequence);
  transport_->WakeClient();
  return Outcome::kDone;
}

absl::StatusOr<DeviceSession::Outcome> DeviceSession::Timestamp(Bytes bytes, Queue& queue) {
  wire::TimestampCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  if (command.slot >= wire::kMaxTimestamps) return Breach("a timestamp's slot is out of range");
  RETURN_IF_ERROR(queue.completion->WriteTimestamp(command.slot));
  return Outcome::kDone;
}

absl::StatusOr<DeviceSession::Outcome> DeviceSession::Wait(Bytes bytes) {
  wire::WaitCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  if (command.other >= wire::kMaxQueues) return Breach("a wait names a queue that does not exist");
  const std::optional<uint32_t> lane = session_->LaneOf(command.device);
  if (lane == device_) return WaitForQueue(command);
  const std::optional<uint64_t> completed = lane ? session_->Completed(*lane, command.other) : std::nullopt;
  if (!completed) return Breach("a wait names a device that the session has not opened");
  if (*completed >= command.sequence) return Outcome::kDone;
  RETURN_IF_ERROR(Announce());  // the other device may wait for this one
  awaits_peer_ = true;
  return Stalls(records::Stall::kPeer);
}

absl::StatusOr<DeviceSession::Outcome> DeviceSession::WaitForQueue(const wire::WaitCommand& command) {
  if (!queues_.IsOpen(command.other)) return Breach("a wait names a queue that does not exist");
  if (command.sequence > queues_[command.other].completion->submitted())
    return Breach("a wait names a command that is not an earlier one of its queue");
  RETURN_IF_ERROR(Announce());
  const std::atomic_ref<uint64_t> completed(*transport_->CompletedWord(command.other));
  if (completed.load(std::memory_order_acquire) >= command.sequence) return Outcome::kDone;
  return Stalls(records::Stall::kQueue);
}

absl::StatusOr<DeviceSession::Outcome> DeviceSession::ClearError(Bytes bytes, Queue& queue) {
  wire::ClearErrorCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  ASSIGN_OR_RETURN(const memory::Fault reported, errors_.Clear(queue.id, command.errors));
  buffers_.ForgiveInPlace(reported);
  return Outcome::kDone;
}

}  // namespace xpud::session
