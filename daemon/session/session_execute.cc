// Session's part that runs ops: operands are resolved against buffers, the call is checked, planned and
// launched.
#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "daemon/session/session.h"
#include "proto/base/status_macros.h"
#include "proto/ops/check.h"

namespace xpud::session {
namespace {

// A command that takes longer on a device whose work is ours, too, stops for others after this.
constexpr uint64_t kMaxTurnNs = 1'000'000;

// Takes a view's sizes and strides; `elements`: those between its first and last one, or 0 for an empty view.
// Whether that is a number. One dimension after the other, as they were written: who reads two at once waits
// for the writes.
bool TakeView(const wire::DecodedOperand& from, kernels::Operand& to, uint64_t& elements) {
  elements = 1;
  bool empty = false, fits = true;
  to.rank = from.rank;
  for (int d = 0; d < from.rank; ++d) {
    const int64_t size = to.sizes[d] = from.sizes[d], stride = to.strides[d] = from.strides[d];
    uint64_t span;
    empty |= size == 0;
    fits &= !__builtin_mul_overflow(static_cast<uint64_t>(size - 1), static_cast<uint64_t>(stride), &span) &&
            !__builtin_add_overflow(elements, span, &elements);
  }
  if (empty) elements = 0;
  return fits || empty;
}

// Whether so many elements from the view's offset on are more than the buffer has.
bool Leaves(const Buffer& buffer, const wire::DecodedOperand& view, uint64_t elements) {
  uint64_t end;
  return __builtin_add_overflow(view.offset, elements, &end) ||
         __builtin_mul_overflow(end, ops::SizeOf(view.dtype), &end) || end > buffer.bytes;
}

double Bytes(const kernels::Operand& operand) {
  if (!operand.present || operand.immediate) return 0;
  return static_cast<double>(operand.numel()) * static_cast<double>(ops::SizeOf(operand.dtype));
}

// More than 64 MiB to read and write, or more than 2^33 operations: tens of microseconds or more on a large
// GPU.
bool TakesLong(const kernels::OpCall& call) {
  constexpr double kBytes = 1 << 26, kOperations = 8.6e9;
  double bytes = 0;
  for (const auto& operands : {call.outputs, call.inputs}) {
    for (const kernels::Operand& operand : operands) bytes += Bytes(operand);
  }
  return bytes > kBytes || (ops::DescriptorOf(*call.row).cost != nullptr && ops::CostOf(call) > kOperations);
}

// The memory that an op names does not bound what it asks for: attention does more the longer its sequences
// are, and views repeat elements. This does: where nobody can end a command (an executor process can be), it
// may compute for minutes at most.
absl::Status CheckWork(const kernels::OpCall& call, const DeviceState& state) {
  constexpr double kMaxOperations = 0x1p43;
  if (state.device->properties().replaceable || ops::CostOf(call) <= kMaxOperations) return absl::OkStatus();
  return absl::InvalidArgumentError("it would take more than 2^43 operations, the most of one command");
}

absl::Status TooLarge(const wire::DecodedOperand& view, uint64_t memory) {
  return absl::InvalidArgumentError(absl::StrCat("a view of ", view.bytes / ops::SizeOf(view.dtype),
                                                 " elements would take more than the ", memory,
                                                 " bytes that its device has"));
}

}  // namespace

absl::Status Session::ResolveTensor(const wire::DecodedOperand& from, kernels::Operand& to, Buffer*& buffer,
                                    uint32_t queue_id) {
  buffer = buffers_.Find(from.buffer);
  if (buffer == nullptr) return absl::InvalidArgumentError("a tensor names a buffer that does not exist");
  if (buffer->device != queues_[queue_id].device)
    return absl::InvalidArgumentError("a tensor is on another device than its queue");
  uint64_t elements;
  if (!TakeView(from, to, elements) || (elements != 0 && Leaves(*buffer, from, elements))) {
    return absl::InvalidArgumentError(absl::StrCat("a view of ", elements, " elements from element ",
                                                   from.offset, " leaves its buffer of ", buffer->bytes,
                                                   " bytes"));
  }
  // Views repeat their elements where strides are small, so that this is another bound than the buffer's.
  const uint64_t memory = devices_[buffer->device].pool->ledger().capacity();
  if (elements != 0 && from.bytes > memory) return TooLarge(from, memory);
  buffer->queues |= uint64_t{1} << queue_id;
  // Without storage nothing is read: see ReadsPoison.
  const bool starts_behind = elements != 0 && buffer->poison != Poison::kNoStorage;
  to.data = buffer->block.address + (starts_behind ? from.offset * ops::SizeOf(from.dtype) : 0);
  to.content = buffer->content;
  return absl::OkStatus();
}

absl::Status Session::ResolveOperands(uint32_t queue_id) {
  absl::Status first;
  inputs_ = ops::DescriptorOf(*execute_.row).lists > 0 ? execute_.inputs : execute_.row->inputs;
  if (execute_.inputs > inputs_)
    first = absl::InvalidArgumentError(
        absl::StrCat(execute_.inputs, " inputs; at most ", inputs_, " are allowed"));
  if (const size_t most = execute_.outputs + std::max(inputs_, execute_.inputs); operands_.size() < most) {
    operands_.resize(most);
    operand_buffers_.resize(most);
  }
  for (uint32_t i = 0; i < execute_.outputs + inputs_; ++i) {
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
    if (!status.ok() && first.ok())
      first = std::move(status);  // go on, after any error: the outputs must be found, to be poisoned
  }
  return first;
}

kernels::OpCall Session::Call() const {
  kernels::OpCall call;
  call.row = execute_.row;
  call.compute = execute_.compute;
  call.outputs = {operands_.data(), execute_.outputs};
  call.inputs = {operands_.data() + execute_.outputs, inputs_};
  call.attributes = execute_.attributes;
  call.lists = execute_.lists;
  return call;
}

bool Session::ReadsPoison() const {
  for (uint32_t i = 0; i < execute_.outputs + inputs_; ++i) {
    const Buffer* buffer = operand_buffers_[i];
    if (buffer == nullptr || buffer->poison == Poison::kNone) continue;
    if (buffer->poison == Poison::kNoStorage || i >= execute_.outputs) return true;
    // An output that does not fill its buffer leaves the poisoned rest.
    if (static_cast<uint64_t>(operands_[i].numel()) * ops::SizeOf(operands_[i].dtype) != buffer->bytes)
      return true;
  }
  return false;
}

void Session::PoisonOutputs() {
  for (uint32_t i = 0; i < execute_.outputs; ++i) {
    if (operand_buffers_[i] != nullptr) PoisonSkipped(*operand_buffers_[i]);
  }
}

void Session::MarkOutputsWritten() {
  for (uint32_t i = 0; i < execute_.outputs; ++i) {
    Buffer* buffer = operand_buffers_[i];
    if (buffer == nullptr) continue;
    buffer->poison = Poison::kNone;
    MarkWritten(*buffer);
  }
}

void Session::CheckErrorWord(Queue& queue, const kernels::OpCall& call) {
  const uint64_t word = std::atomic_ref<uint64_t>(queue.error_word).load(std::memory_order_relaxed);
  if (word == 0) [[likely]]
    return;
  std::atomic_ref<uint64_t>(queue.error_word).store(0, std::memory_order_relaxed);
  RaiseIndexError(queue, current_queue_, sequence_ + 1, word, ops::Describe(call));
}

void Session::RaiseIndexError(Queue& queue, uint32_t queue_id, uint64_t sequence, uint64_t word,
                              const std::string& command) {
  const int64_t value = static_cast<int64_t>(word) >> 8;
  Raise(queue, queue_id, sequence,
        absl::OutOfRangeError(absl::StrCat("index ", value, " is out of range in ", command)));
}

void Session::FreeWorkspace(Queue& queue) {
  for (const memory::Block& block : workspace_) {
    if (queue.in_flight == nullptr) {
      devices_[queue.device].pool->Free(block);
    } else {
      queue.in_flight->Retire(block, sequence_ + 1);
    }
  }
  workspace_.clear();
}

absl::StatusOr<Session::Outcome> Session::PlanAndLaunch(Queue& queue, const kernels::OpCall& call) {
  const auto workspace = [&](size_t size) -> absl::StatusOr<void*> {
    ASSIGN_OR_RETURN(const memory::Block block, TakeMemory(queue, size));
    workspace_.push_back(block);
    return static_cast<void*>(block.address);
  };
  absl::StatusOr<kernels::Readiness> ready = kernels::Readiness::kReady;
  if (!stopped_) ready = devices_[queue.device].library->Plan(call, workspace, launches_);
  if (absl::IsUnavailable(ready.status())) ready = kernels::Readiness::kCompiling;  // for want of memory
  absl::StatusOr<bool> launched = ready.ok() && *ready == kernels::Readiness::kReady;
  if (launched.value()) launched = queue.device_queue->LaunchFor(launches_, uses_, kMaxTurnNs);
  stopped_ = ready.ok() && *ready == kernels::Readiness::kReady && launched.ok() && !*launched;
  if (stopped_) return Outcome::kStopped;
  FreeWorkspace(queue);
  RETURN_IF_ERROR(ready.status());
  RETURN_IF_ERROR(launched.status());
  return *launched ? Outcome::kDone : Outcome::kStalled;  // until its kernel is compiled
}

Session::Outcome Session::Refuse(Queue& queue, const absl::Status& why, const kernels::OpCall* call) {
  const std::string name(execute_.row->aten.substr(0, execute_.row->aten.find('|')));
  Raise(queue, current_queue_,
        absl::Status(why.code(),
                     absl::StrCat(call != nullptr ? ops::Describe(*call) : name, ": ", why.message())));
  PoisonOutputs();
  return Outcome::kDone;
}

absl::StatusOr<Session::Outcome> Session::Execute(std::span<const std::byte> bytes, uint32_t queue_id) {
  Queue& queue = queues_[queue_id];
  if (stopped_) return LaunchChecked(queue, Call());
  RETURN_IF_ERROR(wire::DecodeExecute(bytes, execute_));
  const DeviceState& state = devices_[queue.device];
  if (absl::Status status = ResolveOperands(queue_id); !status.ok()) return Refuse(queue, status, nullptr);
  const kernels::OpCall call = Call();
  absl::Status checked = ops::CheckCall(call);
  if (checked.ok()) checked = CheckWork(call, state);
  if (!checked.ok()) return Refuse(queue, checked, &call);
  if (ReadsPoison()) {
    if (!queue.error_raised)
      return Refuse(queue, absl::FailedPreconditionError("reads a tensor whose computation failed"), &call);
    PoisonOutputs();
    return Outcome::kDone;
  }
  if (state.device->properties().replaceable) {
    RETURN_IF_ERROR(GuardOutputs(queue_id));
    RecordUses();
  }
  return LaunchChecked(queue, call);
}

absl::StatusOr<Session::Outcome> Session::LaunchChecked(Queue& queue, kernels::OpCall call) {
  const bool reports = queue.in_flight != nullptr && ops::DescriptorOf(*execute_.row).reads_indices();
  call.error_word = &queue.error_word;
  if (reports) {
    call.error_word = queue.in_flight->TakeErrorSlot(sequence_ + 1, ops::WordingOf(call),
                                                     [&] { return ops::Describe(call); });
    if (call.error_word == nullptr) return Outcome::kStalled;
  }
  absl::StatusOr<Outcome> outcome = PlanAndLaunch(queue, call);
  const bool done = outcome.ok() && *outcome == Outcome::kDone;
  if (reports && !done) queue.in_flight->ReturnErrorSlot();
  if (!outcome.ok()) return Refuse(queue, outcome.status(), &call);
  heavy_ |= *outcome == Outcome::kStopped;
  if (!done) return outcome;
  devices_[queue.device].launches += launches_.size();
  for (size_t i = 0; i < launches_.size(); ++i) {
    const auto& [x, y, z] = launches_[i].groups();
    heavy_ |= x > 1 || y > 1 || z > 1;
  }
  long_ = queue.in_flight != nullptr && TakesLong(call);
  MarkOutputsWritten();
  if (queue.in_flight == nullptr) CheckErrorWord(queue, call);
  return Outcome::kDone;
}

}  // namespace xpud::session
