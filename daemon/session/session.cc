#include "daemon/session/session.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "daemon/session/op_check.h"
#include "proto/base/status_macros.h"
#include "proto/transport/layout.h"

namespace xpud::session {
namespace {

using wire::CommandKind;

constexpr int kCommandsPerLook = 8;           // light commands between two looks at the clock
constexpr uint64_t kHeavyCopyBytes = 64 << 10;

uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

// Identifies the contents of buffers over all sessions. The engine thread only.
uint64_t NextContent() {
  static uint64_t last = 0;
  return ++last;
}

absl::Status Breach(const char* what) { return absl::InvalidArgumentError(what); }

// The elements between a view's first and last one, or 0 for an empty view. Cannot overflow: see DecodeExecute.
bool Extent(const kernels::Operand& operand, uint64_t& elements) {
  elements = 1;
  for (int d = 0; d < operand.rank; ++d) {
    if (operand.sizes[d] == 0) {
      elements = 0;
      return true;
    }
    uint64_t span;
    if (__builtin_mul_overflow(static_cast<uint64_t>(operand.sizes[d] - 1), static_cast<uint64_t>(operand.strides[d]), &span) ||
        __builtin_add_overflow(elements, span, &elements)) {
      return false;
    }
  }
  return true;
}

}  // namespace

Session::Session(uint64_t id, Peer peer, std::unique_ptr<transport::ServerTransport> transport, std::span<DeviceState> devices)
    : id_(id), peer_(std::move(peer)), opened_ns_(NowNs()), transport_(std::move(transport)), devices_(devices) {}

absl::Status Session::Open() {
  for (uint32_t d = 0; d < devices_.size(); ++d) {
    ASSIGN_OR_RETURN(queues_[d].device_queue, devices_[d].device->CreateQueue(0));
    queues_[d].device = d;
    open_queues_ |= uint64_t{1} << d;
  }
  return absl::OkStatus();
}

Session::~Session() {
  for (uint32_t q = 0; q < wire::kMaxQueues; ++q) {
    // A queue that does not finish belongs to a lost device; its memory goes with the process.
    if (queues_[q].device_queue != nullptr) (void)queues_[q].device_queue->Synchronize(10'000'000'000);
  }
  for (const DeferredFree& entry : deferred_) devices_[entry.device].pool->Free(entry.block);
  buffers_.ForEach([&](Buffer& buffer) {
    if (buffer.block.address != nullptr) devices_[buffer.device].pool->Free(buffer.block);
  });
  for (DeviceState& state : devices_) state.pool->Trim();
}

int Session::queue_count() const { return std::popcount(open_queues_); }

absl::StatusOr<Session::Progress> Session::Run(uint64_t slice_ns) {
  if (batch_.empty()) {
    ASSIGN_OR_RETURN(batch_, transport_->Receive());
    if (batch_.empty()) return Progress::kIdle;
  }
  const uint64_t start = NowNs();
  uint64_t now = start;
  Progress progress = Progress::kWorked;
  for (int since_look = 1; !batch_.empty() && now - start < slice_ns; ++since_look) {
    wire::CommandHeader header;
    RETURN_IF_ERROR(wire::DecodeHeader(batch_, header));
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
  stats_.busy_ns += now - start;
  devices_[queues_[current_queue_].device].busy_ns += now - start;
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
    RETURN_IF_ERROR(queue.device_queue->WriteValue(transport_->CompletedWord(q), queue.submitted));
  }
  stats_.completed = sequence_;
  transport_->WakeClient();
  if (!deferred_.empty()) ReleaseDeferred();
  return absl::OkStatus();
}

absl::StatusOr<Session::Outcome> Session::RunCommand(std::span<const std::byte> bytes, const wire::CommandHeader& header) {
  current_queue_ = header.queue;
  const bool open = (open_queues_ >> header.queue & 1) != 0;
  if (open == (header.kind == CommandKind::kCreateQueue)) return Breach(open ? "a queue was created twice" : "a queue does not exist");
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
      return absl::InvalidArgumentError(absl::StrCat("a command of unknown kind ", static_cast<int>(header.kind)));
  }
  if (!status.ok()) return status;
  return Outcome::kDone;
}

// ---- errors and poison

void Session::Raise(Queue& queue, uint32_t queue_id, const absl::Status& error) {
  ++stats_.errors;
  if (queue.error_raised) return;  // the first one is reported; what follows from it is poison
  queue.error_raised = true;
  transport_->RaiseError(queue_id, sequence_ + 1, error);
}

absl::Status Session::ClearError(std::span<const std::byte> bytes) {
  wire::ClearErrorCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  if (command.errors != transport_->Errors(current_queue_)) return Breach("an error was cleared that was never raised");
  queues_[current_queue_].error_raised = false;
  queues_[current_queue_].error_word = 0;
  buffers_.ForEach([](Buffer& buffer) {
    if (buffer.poison == Poison::kInPlace) buffer.poison = Poison::kNone;
  });
  return absl::OkStatus();
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
  if (buffer == nullptr) return Breach("a buffer's id is in use or out of order, or its generation does not grow");
  Queue& queue = queues_[current_queue_];
  DeviceState& state = devices_[queue.device];
  buffer->device = queue.device;
  buffer->bytes = command.bytes;
  const uint64_t used = allocated_[queue.device];
  absl::StatusOr<memory::Block> block = absl::ResourceExhaustedError(
      absl::StrCat("asked for ", command.bytes, " bytes; this session holds ", used, " of the ", state.memory_limit, " that it may"));
  if (command.bytes <= state.memory_limit && memory::RoundSize(command.bytes) <= state.memory_limit - std::min(used, state.memory_limit)) {
    block = state.pool->Allocate(command.bytes, peer_.uid + 1, [&](std::byte* address, uint64_t size) {
      return queue.device_queue->Zero(address, size);
    });
  }
  if (!block.ok()) {
    buffer->poison = Poison::kNoStorage;
    Raise(queue, current_queue_, absl::ResourceExhaustedError(absl::StrCat("xpud out of memory: ", block.status().message())));
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
    if (queues_[buffer.device].device_queue->synchronous()) {
      devices_[buffer.device].pool->Free(buffer.block);
    } else {
      DeferredFree entry{buffer.block, buffer.device, buffer.queues, {}};
      for (uint32_t q = 0; q < wire::kMaxQueues; ++q) entry.marks[q] = queues_[q].submitted;
      deferred_.push_back(entry);
    }
  }
  buffers_.Erase(buffer);
}

void Session::ReleaseDeferred() {
  std::erase_if(deferred_, [&](const DeferredFree& entry) {
    for (uint64_t rest = entry.queues & open_queues_; rest != 0; rest &= rest - 1) {
      const uint32_t q = static_cast<uint32_t>(std::countr_zero(rest));
      if (std::atomic_ref<uint64_t>(*transport_->CompletedWord(q)).load(std::memory_order_acquire) < entry.marks[q]) return false;
    }
    devices_[entry.device].pool->Free(entry.block);
    return true;
  });
}

// ---- ops

absl::Status Session::ResolveTensor(const wire::DecodedOperand& from, kernels::Operand& to, Buffer*& buffer, uint32_t queue_id) {
  buffer = buffers_.Find(from.buffer);
  if (buffer == nullptr) return absl::InvalidArgumentError("a tensor names a buffer that does not exist");
  if (buffer->device != queues_[queue_id].device) return absl::InvalidArgumentError("a tensor is on another device than its queue");
  to.rank = from.rank;
  std::copy_n(from.sizes.begin(), from.rank, to.sizes.begin());
  std::copy_n(from.strides.begin(), from.rank, to.strides.begin());
  uint64_t elements;
  const uint64_t room = buffer->bytes / ops::SizeOf(from.dtype);
  if (!Extent(to, elements) || (elements != 0 && (from.offset > room || elements > room - from.offset))) {
    return absl::InvalidArgumentError(absl::StrCat("a view of ", elements, " elements from element ", from.offset, " leaves its buffer of ", buffer->bytes, " bytes"));
  }
  buffer->queues |= uint64_t{1} << queue_id;
  to.data = elements == 0 ? buffer->block.address : buffer->block.address + from.offset * ops::SizeOf(from.dtype);
  to.content = buffer->content;
  return absl::OkStatus();
}

absl::Status Session::ResolveOperands(uint32_t queue_id) {
  const int inputs = execute_.row->inputs;
  if (execute_.inputs > inputs) return absl::InvalidArgumentError(absl::StrCat(execute_.inputs, " inputs; at most ", inputs, " are allowed"));
  absl::Status first;
  for (int i = 0; i < execute_.outputs + inputs; ++i) {
    kernels::Operand& to = operands_[i];
    operand_buffers_[i] = nullptr;
    to.data = nullptr;
    to.rank = 0;
    to.content = 0;
    to.immediate = false;
    to.present = false;
    if (i >= execute_.outputs + execute_.inputs) continue;
    const wire::DecodedOperand& from = execute_.operands[i];
    to.dtype = from.dtype;
    to.present = from.kind != wire::OperandKind::kAbsent;
    to.immediate = from.kind == wire::OperandKind::kInteger || from.kind == wire::OperandKind::kReal;
    if (to.immediate) to.number = from.number;
    if (from.kind != wire::OperandKind::kTensor) continue;
    absl::Status status = ResolveTensor(from, to, operand_buffers_[i], queue_id);
    if (!status.ok() && first.ok()) first = std::move(status);  // go on: the outputs must be found, to be poisoned
  }
  return first;
}

kernels::OpCall Session::Call(Queue& queue) const {
  kernels::OpCall call;
  call.row = execute_.row;
  call.compute = execute_.compute;
  call.outputs = {operands_.data(), execute_.outputs};
  call.inputs = {operands_.data() + execute_.outputs, execute_.row->inputs};
  call.attributes = {execute_.numbers.data(), execute_.attributes};
  call.error_word = &queue.error_word;
  return call;
}

bool Session::ReadsPoison() const {
  for (int i = 0; i < execute_.outputs + execute_.inputs; ++i) {
    const Buffer* buffer = operand_buffers_[i];
    if (buffer == nullptr || buffer->poison == Poison::kNone) continue;
    if (buffer->poison == Poison::kNoStorage || i >= execute_.outputs) return true;
    // An output that does not fill its buffer leaves the poisoned rest.
    if (static_cast<uint64_t>(operands_[i].numel()) * ops::SizeOf(operands_[i].dtype) != buffer->bytes) return true;
  }
  return false;
}

void Session::PoisonOutputs() {
  for (int i = 0; i < execute_.outputs; ++i) {
    Buffer* buffer = operand_buffers_[i];
    if (buffer != nullptr && buffer->poison == Poison::kNone) buffer->poison = buffer->written ? Poison::kInPlace : Poison::kFresh;
  }
}

void Session::MarkOutputsWritten() {
  for (int i = 0; i < execute_.outputs; ++i) {
    Buffer* buffer = operand_buffers_[i];
    if (buffer == nullptr) continue;
    buffer->poison = Poison::kNone;
    MarkWritten(*buffer);
  }
}

void Session::CheckErrorWord(Queue& queue, const kernels::OpCall& call) {
  const uint64_t word = std::atomic_ref<uint64_t>(queue.error_word).load(std::memory_order_relaxed);
  if (word == 0) [[likely]] return;
  std::atomic_ref<uint64_t>(queue.error_word).store(0, std::memory_order_relaxed);
  const int64_t value = static_cast<int64_t>(word) >> 8;
  Raise(queue, current_queue_, absl::OutOfRangeError(absl::StrCat("index ", value, " is out of range in ", Describe(call))));
}

absl::StatusOr<Session::Outcome> Session::Execute(std::span<const std::byte> bytes, uint32_t queue_id) {
  RETURN_IF_ERROR(wire::DecodeExecute(bytes, execute_));
  Queue& queue = queues_[queue_id];
  DeviceState& state = devices_[queue.device];
  const auto refuse = [&](const absl::Status& why, const kernels::OpCall* call) {
    const std::string name(execute_.row->aten.substr(0, execute_.row->aten.find('|')));
    Raise(queue, queue_id, absl::Status(why.code(), absl::StrCat(call != nullptr ? Describe(*call) : name, ": ", why.message())));
    PoisonOutputs();
    return Outcome::kDone;
  };
  if (absl::Status status = ResolveOperands(queue_id); !status.ok()) return refuse(status, nullptr);
  const kernels::OpCall call = Call(queue);
  if (absl::Status status = CheckOp(call); !status.ok()) return refuse(status, &call);
  if (ReadsPoison()) {
    if (!queue.error_raised) return refuse(absl::FailedPreconditionError("reads a tensor whose computation failed"), &call);
    PoisonOutputs();
    return Outcome::kDone;
  }
  workspace_.clear();
  const auto workspace = [&](size_t size) -> absl::StatusOr<void*> {
    ASSIGN_OR_RETURN(memory::Block block, state.pool->Allocate(size, peer_.uid + 1, [&](std::byte* address, uint64_t n) {
      return queue.device_queue->Zero(address, n);
    }));
    workspace_.push_back(block);
    return static_cast<void*>(block.address);
  };
  const auto ready = state.library->Plan(call, workspace, launches_);
  absl::Status launched = ready.status();
  if (ready.ok() && *ready == kernels::Readiness::kReady) launched = queue.device_queue->Launch(launches_);
  for (const memory::Block& block : workspace_) {
    if (queue.device_queue->synchronous()) {
      state.pool->Free(block);
    } else {
      DeferredFree entry{block, queue.device, uint64_t{1} << queue_id, {}};
      entry.marks[queue_id] = sequence_ + 1;
      deferred_.push_back(entry);
    }
  }
  if (!launched.ok()) return refuse(launched, &call);
  if (*ready == kernels::Readiness::kCompiling) return Outcome::kStalled;
  state.launches += launches_.size();
  for (size_t i = 0; i < launches_.size(); ++i) {
    const auto& [x, y, z] = launches_[i].groups();
    heavy_ |= x > 1 || y > 1 || z > 1;
  }
  MarkOutputsWritten();
  CheckErrorWord(queue, call);
  return Outcome::kDone;
}

// ---- copies

absl::StatusOr<std::byte*> Session::Part(Buffer* buffer, uint64_t offset, uint64_t bytes, uint32_t queue_id) {
  heavy_ |= bytes > kHeavyCopyBytes;
  if (buffer == nullptr) return absl::InvalidArgumentError("a copy names a buffer that does not exist");
  if (buffer->device != queues_[queue_id].device) return absl::InvalidArgumentError("a copy names a buffer on another device than its queue");
  if (offset > buffer->bytes || bytes > buffer->bytes - offset) {
    return absl::InvalidArgumentError(absl::StrCat("a copy of ", bytes, " bytes at ", offset, " leaves its buffer of ", buffer->bytes, " bytes"));
  }
  if (buffer->poison == Poison::kNoStorage) return absl::FailedPreconditionError("a copy names a buffer whose allocation failed");
  buffer->queues |= uint64_t{1} << queue_id;
  return buffer->block.address + offset;
}

absl::StatusOr<std::byte*> Session::StagingPart(uint64_t offset, uint64_t bytes) const {
  const auto staging = transport_->staging();
  if (offset > staging.size() || bytes > staging.size() - offset) return Breach("a copy leaves the staging memory");
  return staging.data() + offset;
}

absl::Status Session::Upload(std::span<const std::byte> bytes) {
  wire::UploadCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  ASSIGN_OR_RETURN(const std::byte* source, StagingPart(command.staging_offset, command.bytes));
  Queue& queue = queues_[current_queue_];
  Buffer* buffer = buffers_.Find(command.buffer);
  const auto target = Part(buffer, command.offset, command.bytes, current_queue_);
  const absl::Status status = target.ok() ? queue.device_queue->Copy(*target, source, command.bytes) : target.status();
  if (!status.ok()) {
    Raise(queue, current_queue_, status);
    return absl::OkStatus();
  }
  if (buffer->poison == Poison::kFresh && command.bytes == buffer->bytes) buffer->poison = Poison::kNone;
  MarkWritten(*buffer);
  stats_.uploaded_bytes += command.bytes;
  return absl::OkStatus();
}

absl::Status Session::UploadInline(std::span<const std::byte> bytes) {
  wire::UploadInlineCommand command;
  std::span<const std::byte> payload;
  RETURN_IF_ERROR(wire::DecodeUploadInline(bytes, command, payload));
  Queue& queue = queues_[current_queue_];
  Buffer* buffer = buffers_.Find(command.buffer);
  const auto target = Part(buffer, command.offset, payload.size(), current_queue_);
  absl::Status status = target.ok() ? queue.device_queue->Copy(*target, payload.data(), payload.size()) : target.status();
  // The payload lies in the batch, which the next receive overwrites.
  if (status.ok() && !queue.device_queue->synchronous()) status = queue.device_queue->Synchronize(UINT64_MAX);
  if (!status.ok()) {
    Raise(queue, current_queue_, status);
    return absl::OkStatus();
  }
  if (buffer->poison == Poison::kFresh && payload.size() == buffer->bytes) buffer->poison = Poison::kNone;
  MarkWritten(*buffer);
  stats_.uploaded_bytes += payload.size();
  return absl::OkStatus();
}

absl::Status Session::Download(std::span<const std::byte> bytes) {
  wire::DownloadCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  ASSIGN_OR_RETURN(std::byte * target, StagingPart(command.staging_offset, command.bytes));
  Queue& queue = queues_[current_queue_];
  Buffer* buffer = buffers_.Find(command.buffer);
  const auto source = Part(buffer, command.offset, command.bytes, current_queue_);
  absl::Status status = source.status();
  if (source.ok() && buffer->poison != Poison::kNone) status = absl::FailedPreconditionError("reads a tensor whose computation failed");
  if (status.ok()) status = queue.device_queue->Copy(target, *source, command.bytes);
  if (!status.ok()) {
    Raise(queue, current_queue_, status);
    return absl::OkStatus();
  }
  stats_.downloaded_bytes += command.bytes;
  return absl::OkStatus();
}

absl::Status Session::Copy(std::span<const std::byte> bytes) {
  wire::CopyCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  Queue& queue = queues_[current_queue_];
  Buffer* source_buffer = buffers_.Find(command.source);
  Buffer* target_buffer = buffers_.Find(command.target);
  const auto source = Part(source_buffer, command.source_offset, command.bytes, current_queue_);
  const auto target = Part(target_buffer, command.target_offset, command.bytes, current_queue_);
  absl::Status status = source.ok() ? target.status() : source.status();
  if (status.ok() && source_buffer->poison != Poison::kNone) status = absl::FailedPreconditionError("reads a tensor whose computation failed");
  const bool overlaps = source_buffer == target_buffer && command.source_offset < command.target_offset + command.bytes &&
                        command.target_offset < command.source_offset + command.bytes;
  if (status.ok() && overlaps) status = absl::InvalidArgumentError("a copy's source and target overlap");
  if (status.ok()) status = queue.device_queue->Copy(*target, *source, command.bytes);
  if (!status.ok()) {
    Raise(queue, current_queue_, status);
    if (target_buffer != nullptr && target_buffer->poison == Poison::kNone) {
      target_buffer->poison = target_buffer->written ? Poison::kInPlace : Poison::kFresh;
    }
    return absl::OkStatus();
  }
  if (target_buffer->poison == Poison::kFresh && command.bytes == target_buffer->bytes) target_buffer->poison = Poison::kNone;
  MarkWritten(*target_buffer);
  return absl::OkStatus();
}

// ---- queues and events

absl::Status Session::CreateQueue(std::span<const std::byte> bytes) {
  wire::CreateQueueCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  if (command.device >= devices_.size()) return Breach("a queue names a device that does not exist");
  Queue& queue = queues_[current_queue_];
  ASSIGN_OR_RETURN(queue.device_queue, devices_[command.device].device->CreateQueue(command.priority));
  queue.device = command.device;
  open_queues_ |= uint64_t{1} << current_queue_;
  return absl::OkStatus();
}

absl::Status Session::DestroyQueue(std::span<const std::byte> bytes) {
  wire::DestroyQueueCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  if (current_queue_ < devices_.size()) return Breach("a default queue was destroyed");
  Queue& queue = queues_[current_queue_];
  RETURN_IF_ERROR(queue.device_queue->Synchronize(UINT64_MAX));
  RETURN_IF_ERROR(queue.device_queue->WriteValue(transport_->CompletedWord(current_queue_), sequence_ + 1));
  queue = Queue{};
  open_queues_ &= ~(uint64_t{1} << current_queue_);
  return absl::OkStatus();
}

absl::Status Session::Timestamp(std::span<const std::byte> bytes) {
  wire::TimestampCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  if (command.slot >= wire::kMaxTimestamps) return Breach("a timestamp's slot is out of range");
  return queues_[current_queue_].device_queue->WriteValue(transport_->TimestampWord(command.slot), NowNs());
}

absl::StatusOr<Session::Outcome> Session::WaitForQueue(std::span<const std::byte> bytes) {
  wire::WaitCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  if (command.other >= wire::kMaxQueues || (open_queues_ >> command.other & 1) == 0) return Breach("a wait names a queue that does not exist");
  if (command.sequence > queues_[command.other].submitted) return Breach("a wait names a command that is not an earlier one of its queue");
  RETURN_IF_ERROR(PublishCompletions());
  const uint64_t done = std::atomic_ref<uint64_t>(*transport_->CompletedWord(command.other)).load(std::memory_order_acquire);
  return done >= command.sequence ? Outcome::kDone : Outcome::kStalled;
}

}  // namespace xpud::session
