#include "sdk/client/device_session.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/round_size.h"
#include "proto/base/status_macros.h"
#include "sdk/client/core.h"

namespace xpud::client {
namespace {

constexpr uint64_t kAtOnce = 1 << 20;  // smaller allocations and frees wait for the next published command

}  // namespace

DeviceSession::DeviceSession(Core& core, uint32_t device,
                             std::unique_ptr<transport::ClientTransport> transport,
                             const Connection& connection, uint32_t used_generations, uint64_t peers)
    : core_(core),
      device_(device),
      at_daemon_(core.AtDaemon(device)),
      transport_(std::move(transport)),
      total_memory_(core.devices()[device].total_memory),
      peers_(core.copies_between() ? peers : 0),
      ids_(used_generations),
      staging_(connection.welcome.staging_bytes) {
  SpinLock lock(mutex_);
  queues_[0].exists = true;
  for (uint32_t slot = wire::kMaxTimestamps; slot-- > 0;) free_timestamps_.push_back(slot);
}

absl::Status DeviceSession::UntilRoom(absl::FunctionRef<bool()> attempt) {
  {
    SpinLock lock(mutex_);
    if (attempt()) [[likely]]
      return absl::OkStatus();
    transport_->Publish();
  }
  RETURN_IF_ERROR(Noted(transport_->status()));  // the ring of a daemon that is gone stays full
  // Without the lock: the interrupt function may need a lock (Python's) whose holder waits for ours.
  return Noted(transport_->Wait(
      [&] {
        SpinLock lock(mutex_);
        return attempt();
      },
      core_.interrupt()));
}

uint64_t DeviceSession::Committed(uint32_t queue, size_t bytes) {
  transport_->Commit(bytes);
  queues_[queue].last_sequence = ++sequence_;
  if (observer_ != nullptr) [[unlikely]]
    observer_->OnCommand(device_, queue, sequence_);
  return sequence_;
}

template <typename Command>
absl::StatusOr<uint64_t> DeviceSession::Send(const Command& command) {
  uint64_t sequence = 0;
  RETURN_IF_ERROR(UntilRoom([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    sequence = Append(command);
    if (sequence != 0) transport_->Publish();
    return sequence != 0;
  }));
  return sequence;
}

bool DeviceSession::HasCredit(uint64_t bytes) {
  if (bytes <= total_memory_ && transport_->Claim(charged_ + RoundSize(bytes))) [[likely]]
    return true;
  if (!requests_.empty()) {  // memory that was shared since is not charged any more
    Settle();
    if (bytes <= total_memory_ && transport_->Claim(charged_ + RoundSize(bytes))) return true;
  }
  transport_->Claim(charged_);
  return false;
}

absl::StatusOr<uint64_t> DeviceSession::FreeMemory() {
  RETURN_IF_ERROR(core_.CheckUsable());
  ASSIGN_OR_RETURN(const auto limit, Reserve(0, [] { return UINT64_MAX; }));
  return limit ? limit->limit - std::min(limit->used, limit->limit) : total_memory_;
}

absl::StatusOr<std::optional<MemoryShortage>> DeviceSession::Reserve(uint32_t queue,
                                                                     absl::FunctionRef<uint64_t()> bytes) {
  for (;;) {
    uint64_t sequence = 0;
    RETURN_IF_ERROR(UntilRoom([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      sequence = Append(wire::ReserveCommand{
          wire::Header(wire::CommandKind::kReserve, queue, sizeof(wire::ReserveCommand)), bytes()});
      if (sequence != 0) transport_->Publish();
      return sequence != 0;
    }));
    RETURN_IF_ERROR(Noted(
        transport_->Wait([&] { return transport_->AnsweredReserve() >= sequence; }, core_.interrupt())));
    const std::optional<MemoryShortage> refusal = transport_->Refusal();
    // There is one place for answers: if another thread's came since, ask again.
    if (transport_->AnsweredReserve() == sequence) return refusal;
  }
}

absl::Status DeviceSession::AskForCredit(uint32_t queue, uint64_t bytes) {
  ASSIGN_OR_RETURN(const auto shortage, Reserve(queue, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                     // The daemon comes to this after what is being shared.
                     return bytes <= total_memory_ ? charged_ - sharing_bytes_ + RoundSize(bytes)
                                                   : UINT64_MAX;
                   }));
  return shortage ? OutOfMemory(bytes, device_, total_memory_, *shortage) : absl::OkStatus();
}

void DeviceSession::Count(uint64_t bytes) {
  memory_.allocated_bytes += bytes;
  memory_.peak_allocated_bytes = std::max(memory_.peak_allocated_bytes, memory_.allocated_bytes);
  memory_.total_allocated_bytes += bytes;
  ++memory_.allocations;
  if (memory_.buffers++ == 0) self_ = core_.shared_from_this();
}

std::shared_ptr<Core> DeviceSession::Discharge(BufferHandle handle, uint64_t bytes) {
  bool is_charged = true;
  if (!sharing_.empty()) [[unlikely]] {
    const auto sharing = sharing_.find(handle.id);
    if (sharing != sharing_.end() && sharing->second.generation == handle.generation) {
      is_charged = !sharing->second.shared;
      if (is_charged) sharing_bytes_ -= RoundSize(bytes);
      sharing_.erase(sharing);
    }
  }
  if (is_charged) charged_ -= RoundSize(bytes);
  transport_->Claim(charged_);
  memory_.allocated_bytes -= bytes;
  memory_.total_freed_bytes += bytes;
  ++memory_.frees;
  return --memory_.buffers == 0 ? std::move(self_) : nullptr;
}

MemoryStats DeviceSession::Memory() {
  SpinLock lock(mutex_);
  return memory_;
}

void DeviceSession::ResetPeakMemory() {
  SpinLock lock(mutex_);
  memory_.peak_allocated_bytes = memory_.allocated_bytes;
}

void DeviceSession::ResetAccumulatedMemory() {
  SpinLock lock(mutex_);
  memory_.allocations = memory_.frees = memory_.total_allocated_bytes = memory_.total_freed_bytes = 0;
}

absl::StatusOr<BufferHandle> DeviceSession::Allocate(uint32_t queue, uint64_t bytes) {
  RETURN_IF_ERROR(core_.CheckUsable());
  absl::StatusOr<BufferHandle> handle = BufferHandle{};
  bool credited = true;
  const auto attempt = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    credited = HasCredit(bytes);
    if (!credited) [[unlikely]]
      return true;
    std::byte* space = transport_->Reserve(sizeof(wire::AllocateCommand));
    if (space == nullptr) [[unlikely]]
      return false;
    handle = ids_.Take();
    if (!handle.ok()) return true;
    const wire::AllocateCommand command = {
        wire::Header(wire::CommandKind::kAllocate, queue, sizeof(wire::AllocateCommand)),
        wire::ToWire(*handle), bytes};
    std::memcpy(space, &command, sizeof(command));
    Committed(queue, sizeof(command));
    Charge(bytes);
    if (bytes >= kAtOnce) transport_->Publish();
    return true;
  };
  RETURN_IF_ERROR(UntilRoom(attempt));
  // Another thread may take the credit; then this one asks again.
  while (!credited) {
    RETURN_IF_ERROR(AskForCredit(queue, bytes));
    RETURN_IF_ERROR(UntilRoom(attempt));
  }
  return handle;
}

void DeviceSession::Free(BufferHandle handle, uint64_t bytes) {
  if (core_.forked()) return;
  const wire::FreeCommand command = {wire::Header(wire::CommandKind::kFree, 0, sizeof(wire::FreeCommand)),
                                     wire::ToWire(handle)};
  std::shared_ptr<Core> last;
  const absl::Status sent = UntilRoom([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (Append(command) == 0) return false;
    ids_.Return(handle);
    last = Discharge(handle, bytes);
    if (bytes >= kAtOnce) transport_->Publish();
    return true;
  });
  if (sent.ok()) [[likely]]
    return;
  SpinLock lock(mutex_);  // the session has ended, which freed everything
  last = Discharge(handle, bytes);
}

absl::Status DeviceSession::UnknownOp(const ops::Row& row) const {
  return absl::UnimplementedError(absl::StrCat(
      "the xpud daemon at ", core_.address(), " (version ", core_.daemon_version(), ") does not know ",
      std::string(row.aten), "; update it to at least this client's version"));
}

absl::Status DeviceSession::CheckOperands(const OpCall& call) const {
  for (const auto& operands : {call.outputs, call.inputs}) {
    for (const TensorRef& operand : operands) {
      if (operand.kind == TensorRef::Kind::kTensor) RETURN_IF_ERROR(core_.CheckIsOurs(operand.buffer));
    }
  }
  return absl::OkStatus();
}

absl::Status DeviceSession::Execute(uint32_t queue, const OpCall& call) {
  RETURN_IF_ERROR(core_.CheckUsable());
  if (!ops::Contains(core_.rows(), *call.row)) [[unlikely]]
    return UnknownOp(*call.row);
  if (core_.IsInPlaceOfAnother()) [[unlikely]]
    RETURN_IF_ERROR(CheckOperands(call));
  ASSIGN_OR_RETURN(const size_t bytes, wire::ExecuteBytes(call));
  return UntilRoom([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::byte* space = transport_->Reserve(bytes);
    if (space == nullptr) [[unlikely]]
      return false;
    wire::EncodeExecute(call, queue, space);
    Committed(queue, bytes);
    transport_->Publish();
    return true;
  });
}

absl::StatusOr<uint32_t> DeviceSession::DefineKernel(uint32_t queue, std::span<const std::byte> bytes,
                                                     std::string_view name) {
  RETURN_IF_ERROR(core_.CheckUsable());
  if (!core_.knows_loop_kernels()) return UnknownOp(Core::LoopRow());
  name = name.substr(0, wire::kMaxKernelName);
  ASSIGN_OR_RETURN(const size_t size, wire::DefineKernelBytes(bytes, name));
  absl::StatusOr<uint32_t> id = 0;
  RETURN_IF_ERROR(UntilRoom([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::byte* const space = transport_->Reserve(size);
    if (space == nullptr) return false;
    id = kernel_ids_.Take();
    if (!id.ok()) return true;
    wire::EncodeDefineKernel(*id, bytes, name, queue, space);
    Committed(queue, size);
    transport_->Publish();
    return true;
  }));
  return id;
}

void DeviceSession::ForgetKernel(uint32_t id) {
  if (core_.forked()) return;
  const wire::ForgetKernelCommand command = {
      wire::Header(wire::CommandKind::kForgetKernel, 0, sizeof(wire::ForgetKernelCommand)), id, 0};
  const absl::Status sent = UntilRoom([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (Append(command) == 0) return false;
    kernel_ids_.Return(id);  // a later definition comes after this command
    return true;
  });
  (void)sent;  // a session that has ended has no kernels
}

absl::Status DeviceSession::PrepareKernel(uint32_t queue, uint32_t id, std::span<const int64_t> sizes,
                                          std::span<const int64_t> elements) {
  RETURN_IF_ERROR(core_.CheckUsable());
  if (!core_.prepares_loop_kernels()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const size_t size, wire::PrepareKernelBytes(sizes, elements));
  return UntilRoom([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::byte* const space = transport_->Reserve(size);
    if (space == nullptr) return false;
    wire::EncodePrepareKernel(id, sizes, elements, queue, space);
    Committed(queue, size);
    transport_->Publish();
    return true;
  });
}

absl::Status DeviceSession::Copy(uint32_t queue, BufferHandle source, uint64_t source_offset,
                                 BufferHandle target, uint64_t target_offset, uint64_t bytes) {
  RETURN_IF_ERROR(core_.CheckUsable());
  RETURN_IF_ERROR(core_.CheckIsOurs(source));
  RETURN_IF_ERROR(core_.CheckIsOurs(target));
  return Send(wire::CopyCommand{wire::Header(wire::CommandKind::kCopy, queue, sizeof(wire::CopyCommand)),
                                wire::ToWire(source), wire::ToWire(target), source_offset, target_offset,
                                bytes})
      .status();
}

absl::StatusOr<uint32_t> DeviceSession::CreateQueue(int priority) {
  RETURN_IF_ERROR(core_.CheckUsable());
  uint32_t id = 0;
  {
    SpinLock lock(mutex_);
    while (id < wire::kMaxQueues && queues_[id].exists) ++id;
    if (id == wire::kMaxQueues) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a session can hold at most ", wire::kMaxQueues, " queues on a device"));
    }
    queues_[id].exists = true;
  }
  RETURN_IF_ERROR(Send(wire::CreateQueueCommand{wire::Header(wire::CommandKind::kCreateQueue, id,
                                                             sizeof(wire::CreateQueueCommand)),
                                                priority, 0})
                      .status());
  return id;
}

absl::Status DeviceSession::DestroyQueue(uint32_t queue) {
  RETURN_IF_ERROR(Synchronize(queue));
  RETURN_IF_ERROR(Send(wire::DestroyQueueCommand{wire::Header(wire::CommandKind::kDestroyQueue, queue,
                                                              sizeof(wire::DestroyQueueCommand))})
                      .status());
  SpinLock lock(mutex_);
  queues_[queue].exists = false;
  return absl::OkStatus();
}

uint64_t DeviceSession::LastSequence(uint32_t queue) {
  SpinLock lock(mutex_);
  transport_->Publish();
  return queues_[queue].last_sequence;
}

absl::StatusOr<std::shared_ptr<const uint32_t>> DeviceSession::RecordTimestamp(uint32_t queue) {
  RETURN_IF_ERROR(core_.CheckUsable());
  uint32_t slot;
  {
    SpinLock lock(mutex_);
    if (free_timestamps_.empty()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a session can hold at most ", wire::kMaxTimestamps, " events with timing"));
    }
    slot = free_timestamps_.back();
    free_timestamps_.pop_back();
  }
  RETURN_IF_ERROR(
      Send(wire::TimestampCommand{
               wire::Header(wire::CommandKind::kTimestamp, queue, sizeof(wire::TimestampCommand)), slot, 0})
          .status());
  return std::shared_ptr<const uint32_t>(new uint32_t(slot),
                                         [this, core = core_.shared_from_this()](const uint32_t* owned) {
                                           SpinLock relock(mutex_);
                                           free_timestamps_.push_back(*owned);
                                           delete owned;
                                         });
}

absl::Status DeviceSession::SendRange(uint32_t queue, std::string_view name) {
  RETURN_IF_ERROR(core_.CheckUsable());
  if (!core_.knows_ranges()) return absl::OkStatus();
  name = name.substr(0, wire::kMaxRangeName);
  const size_t bytes = sizeof(wire::RangeCommand) + wire::PadTo8(name.size());
  const wire::RangeCommand command = {wire::Header(wire::CommandKind::kRange, queue, bytes),
                                      static_cast<uint32_t>(name.size()), 0};
  return UntilRoom([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::byte* const space = transport_->Reserve(bytes);
    if (space == nullptr) return false;
    std::memset(space, 0, bytes);
    std::memcpy(space, &command, sizeof(command));
    std::memcpy(space + sizeof(command), name.data(), name.size());
    Committed(queue, bytes);
    transport_->Publish();
    return true;
  });
}

absl::Status DeviceSession::WaitInQueue(uint32_t queue, const DeviceSession& device, uint32_t other,
                                        uint64_t sequence) {
  RETURN_IF_ERROR(core_.CheckUsable());
  if (device.IsComplete(other, sequence) || (&device == this && queue == other)) return absl::OkStatus();
  // Another device reports its progress at once only if it is asked to.
  if (&device != this) device.transport_->RequestAnswer(transport::WaitsFor({other, sequence}));
  return Send(wire::WaitCommand{wire::Header(wire::CommandKind::kWait, queue, sizeof(wire::WaitCommand)),
                                device.at_daemon_, other, sequence})
      .status();
}

absl::Status DeviceSession::AwaitCommand(uint32_t queue, uint64_t sequence) {
  RETURN_IF_ERROR(core_.CheckUsable());
  return Noted(transport_->Await({queue, sequence}, core_.interrupt()));
}

absl::Status DeviceSession::Await(uint32_t queue, uint64_t sequence, std::optional<uint32_t> since) {
  RETURN_IF_ERROR(AwaitCommand(queue, sequence));
  return TakeError(queue, since);
}

absl::Status DeviceSession::TakeError(uint32_t queue, std::optional<uint32_t> since) {
  // The count is read and cleared under one lock: threads that take errors of a queue clear each one once.
  absl::Status error;
  RETURN_IF_ERROR(UntilRoom([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    QueueState& state = queues_[queue];
    const uint32_t errors = transport_->Errors(queue);
    if (errors == state.errors_taken) [[likely]] {
      error = transport_->CheckOpen();
      if (!error.ok()) [[unlikely]]
        return true;
      if (since && errors != *since && state.taker != std::this_thread::get_id()) error = state.last_error;
      return true;
    }
    error = transport_->LastError(queue);
    if (error.ok()) [[unlikely]] {  // emptied
      error = transport_->CheckOpen();
      return true;
    }
    if (state.exists && Append(wire::ClearErrorCommand{wire::Header(wire::CommandKind::kClearError, queue,
                                                                    sizeof(wire::ClearErrorCommand)),
                                                       errors, 0}) == 0)
      return false;
    transport_->Publish();
    state.errors_taken = errors;
    state.last_error = error;
    state.taker = std::this_thread::get_id();
    return true;
  }));
  return error;
}

absl::StatusOr<bool> DeviceSession::Query(uint32_t queue, uint64_t sequence, uint32_t since) {
  RETURN_IF_ERROR(core_.CheckUsable());
  if (!IsComplete(queue, sequence)) {
    transport_->NotePolling();
    if (HasEnded()) return core_.status();
    return false;
  }
  RETURN_IF_ERROR(TakeError(queue, since));
  return true;
}

absl::Status DeviceSession::Synchronize(uint32_t queue) {
  const uint32_t errors = ErrorsTaken(queue);
  return Await(queue, LastSequence(queue), errors);
}

absl::Status DeviceSession::SynchronizeAll() {
  absl::Status first;
  for (uint32_t queue = 0; queue < wire::kMaxQueues; ++queue) {
    {
      SpinLock lock(mutex_);
      if (!queues_[queue].exists) continue;
    }
    first.Update(Synchronize(queue));
  }
  return first;
}

bool DeviceSession::HasEnded() const { return core_.HasEnded(); }

absl::Status DeviceSession::Noted(absl::Status status) const {
  if (absl::IsUnavailable(status)) core_.NoteEnd();
  return status;
}

absl::Status DeviceSession::UnreadError(std::chrono::steady_clock::time_point until) {
  for (uint32_t queue = 0; queue < wire::kMaxQueues; ++queue) {
    {
      SpinLock lock(mutex_);
      if (!queues_[queue].exists) continue;
    }
    const auto out_of_time = [&] {
      const bool late = std::chrono::steady_clock::now() >= until;
      return late ? absl::DeadlineExceededError("the device still works") : absl::OkStatus();
    };
    (void)transport_->Await({queue, LastSequence(queue)}, out_of_time);
    const uint32_t errors = transport_->Errors(queue);
    SpinLock lock(mutex_);
    if (errors == queues_[queue].errors_taken) continue;
    RETURN_IF_ERROR(transport_->LastError(queue));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> DeviceSession::ReleaseHost(uint32_t memory) {
  return Send(wire::ReleaseMemoryCommand{
      wire::Header(wire::CommandKind::kReleaseMemory, 0, sizeof(wire::ReleaseMemoryCommand)), memory, 0});
}

}  // namespace xpud::client
