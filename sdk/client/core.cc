#include "sdk/client/core.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/round_size.h"
#include "proto/base/status_macros.h"
#include "sdk/client/visible_devices.h"

namespace xpud::client {
namespace {

constexpr uint64_t kAtOnce = 1 << 20;  // smaller allocations and frees wait for the next published command

std::atomic<uint32_t> fork_epoch{0};

void WatchForks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { fork_epoch.fetch_add(1); });
  (void)registered;
}

}  // namespace

Core::Core(Connection connection, const ConnectOptions& options)
    : transport_(std::move(connection.transport)),
      address_(std::move(connection.address)),
      daemon_version_(transport::GetText(connection.welcome.text)),
      rows_(connection.welcome.rows),
      started_daemon_(connection.started_daemon),
      interrupt_(options.interrupt),
      fork_epoch_((WatchForks(), fork_epoch.load())),
      staging_(connection.welcome.staging_bytes) {
  const transport::Welcome& welcome = connection.welcome;
  const uint32_t count = std::min<uint32_t>(welcome.device_count, transport::kMaxDevices);
  SpinLock lock(mutex_);
  visible_ = VisibleDevices(std::getenv("XPUD_VISIBLE_DEVICES"), count);
  for (uint32_t d = 0; d < count; ++d)
    queues_[d].exists = true;  // the daemon makes default queue d with the session
  for (const uint32_t d : visible_) {
    const transport::DeviceRecord& record = welcome.devices[d];
    queues_[d].device = static_cast<uint32_t>(devices_.size());
    devices_.push_back({transport::GetText(record.name), transport::GetText(record.kind),
                        transport::GetText(record.vendor), record.total_memory, record.compute_units});
  }
  for (uint32_t slot = wire::kMaxTimestamps; slot-- > 0;) free_timestamps_.push_back(slot);
}

bool Core::forked() const { return fork_epoch.load(std::memory_order_relaxed) != fork_epoch_; }

absl::Status Core::CheckUsable() const {
  if (!forked()) [[likely]]
    return absl::OkStatus();
  return absl::FailedPreconditionError(
      "this xpud session belongs to the parent process; make one after fork");
}

absl::Status Core::status() const {
  RETURN_IF_ERROR(CheckUsable());
  return transport_->status();
}

absl::Status Core::UntilRoom(absl::FunctionRef<bool()> attempt) {
  {
    SpinLock lock(mutex_);
    if (attempt()) [[likely]]
      return absl::OkStatus();
    transport_->Publish();
  }
  // Not under the lock: `interrupt_` may need a lock of its caller's (Python's) that a thread waiting for
  // ours holds.
  return transport_->Wait(
      [&] {
        SpinLock lock(mutex_);
        return attempt();
      },
      interrupt_);
}

uint64_t Core::Committed(uint32_t queue, size_t bytes) {
  transport_->Commit(bytes);
  queues_[queue].last_sequence = ++sequence_;
  return sequence_;
}

template <typename Command>
absl::Status Core::Send(const Command& command, bool publish) {
  return UntilRoom([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (Append(command) == 0) return false;
    if (publish) transport_->Publish();
    return true;
  });
}

bool Core::HasCredit(uint32_t device, uint64_t bytes) {
  if (bytes <= devices_[device].total_memory &&
      transport_->Claim(visible_[device], charged_[device] + RoundSize(bytes))) [[likely]]
    return true;
  transport_->Claim(visible_[device], charged_[device]);
  return false;
}

absl::Status Core::AskForCredit(uint32_t queue, uint32_t device, uint64_t bytes) {
  uint64_t sequence = 0;
  RETURN_IF_ERROR(UntilRoom([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const bool possible = bytes <= devices_[device].total_memory;
    sequence = Append(
        wire::ReserveCommand{wire::Header(wire::CommandKind::kReserve, queue, sizeof(wire::ReserveCommand)),
                             possible ? charged_[device] + RoundSize(bytes) : UINT64_MAX});
    if (sequence != 0) transport_->Publish();
    return sequence != 0;
  }));
  const uint32_t at_daemon = visible_[device];
  RETURN_IF_ERROR(
      transport_->Wait([&] { return transport_->AnsweredReserve(at_daemon) >= sequence; }, interrupt_));
  const auto shortage = transport_->Refusal(at_daemon);
  return shortage ? OutOfMemory(bytes, device, devices_[device].total_memory, *shortage) : absl::OkStatus();
}

void Core::Charge(uint32_t device, uint64_t bytes) {
  charged_[device] += RoundSize(bytes);
  MemoryStats& memory = memory_[device];
  memory.allocated_bytes += bytes;
  memory.peak_allocated_bytes = std::max(memory.peak_allocated_bytes, memory.allocated_bytes);
  memory.total_allocated_bytes += bytes;
  ++memory.allocations;
  ++memory.buffers;
  if (buffers_++ == 0) self_ = shared_from_this();
}

std::shared_ptr<Core> Core::Discharge(uint32_t device, uint64_t bytes) {
  charged_[device] -= RoundSize(bytes);
  transport_->Claim(visible_[device], charged_[device]);
  MemoryStats& memory = memory_[device];
  memory.allocated_bytes -= bytes;
  memory.total_freed_bytes += bytes;
  ++memory.frees;
  --memory.buffers;
  return --buffers_ == 0 ? std::move(self_) : nullptr;
}

MemoryStats Core::Memory(uint32_t device) {
  SpinLock lock(mutex_);
  return memory_[device];
}

void Core::ResetPeakMemory(uint32_t device) {
  SpinLock lock(mutex_);
  memory_[device].peak_allocated_bytes = memory_[device].allocated_bytes;
}

void Core::ResetAccumulatedMemory(uint32_t device) {
  SpinLock lock(mutex_);
  MemoryStats& memory = memory_[device];
  memory.allocations = memory.frees = memory.total_allocated_bytes = memory.total_freed_bytes = 0;
}

absl::StatusOr<BufferHandle> Core::Allocate(uint32_t queue, uint32_t device, uint64_t bytes) {
  RETURN_IF_ERROR(CheckUsable());
  absl::StatusOr<BufferHandle> handle = BufferHandle{};
  bool credited = true;
  const auto attempt = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    credited = HasCredit(device, bytes);
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
    Charge(device, bytes);
    if (bytes >= kAtOnce) transport_->Publish();
    return true;
  };
  RETURN_IF_ERROR(UntilRoom(attempt));
  // Another thread may take what this one was given; then it asks again.
  while (!credited) {
    RETURN_IF_ERROR(AskForCredit(queue, device, bytes));
    RETURN_IF_ERROR(UntilRoom(attempt));
  }
  return handle;
}

void Core::Free(uint32_t device, BufferHandle handle, uint64_t bytes) {
  if (forked()) return;
  const wire::FreeCommand command = {
      wire::Header(wire::CommandKind::kFree, default_queue(device), sizeof(wire::FreeCommand)),
      wire::ToWire(handle)};
  std::shared_ptr<Core> last;
  const absl::Status sent = UntilRoom([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (Append(command) == 0) return false;
    ids_.Return(handle);
    last = Discharge(device, bytes);
    if (bytes >= kAtOnce) transport_->Publish();
    return true;
  });
  if (sent.ok()) [[likely]]
    return;
  SpinLock lock(mutex_);  // the session's end, which frees everything
  last = Discharge(device, bytes);
}

absl::Status Core::UnknownOp(const ops::Row& row) const {
  return absl::UnimplementedError(absl::StrCat("the xpud daemon at ", address_, " (version ", daemon_version_,
                                               ") does not know ", std::string(row.aten),
                                               "; update it to at least this client's version"));
}

absl::Status Core::Execute(uint32_t queue, const OpCall& call) {
  RETURN_IF_ERROR(CheckUsable());
  if (!ops::Contains(rows_, *call.row)) [[unlikely]]
    return UnknownOp(*call.row);
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

absl::Status Core::Copy(uint32_t queue, BufferHandle source, uint64_t source_offset, BufferHandle target,
                        uint64_t target_offset, uint64_t bytes) {
  RETURN_IF_ERROR(CheckUsable());
  return Send(
      wire::CopyCommand{wire::Header(wire::CommandKind::kCopy, queue, sizeof(wire::CopyCommand)),
                        wire::ToWire(source), wire::ToWire(target), source_offset, target_offset, bytes},
      /*publish=*/true);
}

absl::StatusOr<uint32_t> Core::CreateQueue(uint32_t device, int priority) {
  RETURN_IF_ERROR(CheckUsable());
  if (device >= devices_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", device, " does not exist; there are ", devices_.size()));
  }
  uint32_t id = 0;
  {
    SpinLock lock(mutex_);
    while (id < wire::kMaxQueues && queues_[id].exists) ++id;
    if (id == wire::kMaxQueues) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a session can hold at most ", wire::kMaxQueues, " queues"));
    }
    queues_[id].exists = true;
    queues_[id].device = device;
  }
  RETURN_IF_ERROR(Send(wire::CreateQueueCommand{wire::Header(wire::CommandKind::kCreateQueue, id,
                                                             sizeof(wire::CreateQueueCommand)),
                                                visible_[device], priority},
                       /*publish=*/true));
  return id;
}

absl::Status Core::DestroyQueue(uint32_t queue) {
  RETURN_IF_ERROR(Synchronize(queue));
  RETURN_IF_ERROR(Send(wire::DestroyQueueCommand{wire::Header(wire::CommandKind::kDestroyQueue, queue,
                                                              sizeof(wire::DestroyQueueCommand))},
                       /*publish=*/true));
  SpinLock lock(mutex_);
  queues_[queue].exists = false;
  return absl::OkStatus();
}

uint64_t Core::LastSequence(uint32_t queue) {
  SpinLock lock(mutex_);
  transport_->Publish();
  return queues_[queue].last_sequence;
}

absl::StatusOr<std::shared_ptr<const uint32_t>> Core::RecordTimestamp(uint32_t queue) {
  RETURN_IF_ERROR(CheckUsable());
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
  RETURN_IF_ERROR(Send(
      wire::TimestampCommand{
          wire::Header(wire::CommandKind::kTimestamp, queue, sizeof(wire::TimestampCommand)), slot, 0},
      /*publish=*/true));
  return std::shared_ptr<const uint32_t>(new uint32_t(slot),
                                         [self = shared_from_this()](const uint32_t* owned) {
                                           SpinLock relock(self->mutex_);
                                           self->free_timestamps_.push_back(*owned);
                                           delete owned;
                                         });
}

absl::Status Core::WaitInQueue(uint32_t queue, uint32_t other, uint64_t sequence) {
  RETURN_IF_ERROR(CheckUsable());
  if (queue == other || IsComplete(other, sequence)) return absl::OkStatus();
  return Send(wire::WaitCommand{wire::Header(wire::CommandKind::kWait, queue, sizeof(wire::WaitCommand)),
                                other, 0, sequence},
              /*publish=*/true);
}

absl::Status Core::Await(uint32_t queue, uint64_t sequence) {
  RETURN_IF_ERROR(CheckUsable());
  RETURN_IF_ERROR(transport_->Await({queue, sequence}, interrupt_));
  return TakeError(queue);
}

absl::Status Core::TakeError(uint32_t queue) {
  const uint32_t errors = transport_->Errors(queue);
  absl::Status error;
  {
    SpinLock lock(mutex_);
    QueueState& state = queues_[queue];
    if (errors == state.errors_reported) [[likely]]
      return absl::OkStatus();
    state.errors_reported = errors;
    error = transport_->LastError(queue);
  }
  RETURN_IF_ERROR(Send(
      wire::ClearErrorCommand{
          wire::Header(wire::CommandKind::kClearError, queue, sizeof(wire::ClearErrorCommand)), errors, 0},
      /*publish=*/true));
  return error;
}

absl::Status Core::Synchronize(uint32_t queue) { return Await(queue, LastSequence(queue)); }

absl::Status Core::SynchronizeDevice(uint32_t device) {
  absl::Status first;
  for (uint32_t queue = 0; queue < wire::kMaxQueues; ++queue) {
    {
      SpinLock lock(mutex_);
      if (!queues_[queue].exists || queues_[queue].device != device) continue;
    }
    absl::Status status = Synchronize(queue);
    if (first.ok()) first = std::move(status);
  }
  return first;
}

}  // namespace xpud::client
