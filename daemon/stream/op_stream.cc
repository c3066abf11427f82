#include "daemon/stream/op_stream.h"

#include "absl/strings/str_cat.h"
#include "daemon/stream/poison.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/ops/check.h"

namespace xpud::stream {
namespace {

// On a device whose work is the lane's own, an op that takes longer stops, if other sessions wait; after so
// many times as long it does in any case.
constexpr uint64_t kMaxTurnNs = 1'000'000;
constexpr int kMaxTurns = 5;

// Whether any launch has more than one group.
bool HasGroups(const kernels::LaunchList& launches) {
  for (size_t i = 0; i < launches.size(); ++i) {
    const auto& [x, y, z] = launches[i].groups();
    if (x > 1 || y > 1 || z > 1) return true;
  }
  return false;
}

}  // namespace

void OpStream::Drop() {
  if (stopped_ == nullptr) return;
  stopped_->device->EndStopped();
  // It has written some of its outputs, which others may share.
  for (uint32_t i = 0; i < checked_.outputs; ++i) {
    handles::Buffer* const output = checked_.buffers[i];
    if (output == nullptr || !output->own.is_shared) continue;
    const absl::Status error = absl::AbortedError(
        absl::StrCat(ops::Describe(checked_.call), ": the session ended while it ran, and wrote a part"));
    buffers_.Spoil(output->allocation(), {errors_.Number(error), static_cast<uint8_t>(stopped_->id)});
  }
  FreeWorkspace(*stopped_, UINT64_MAX);
  stopped_ = nullptr;
}

absl::StatusOr<Outcome> OpStream::Run(std::span<const std::byte> bytes, Queue& queue, Command& command) {
  if (stopped_ != nullptr) return Launch(queue, command);
  RETURN_IF_ERROR(wire::DecodeExecute(bytes, decoded_));
  command.row = decoded_.row;
  command.heavy |= ops::DescriptorOf(*decoded_.row).runs_kernel;  // a call of new sizes is proved
  absl::Status status = checker_.Resolve(decoded_, queue.id, checked_);
  if (!lends_.empty() && WritesLent()) [[unlikely]] {
    command.stall = records::Stall::kLent;
    return Outcome::kStalled;
  }
  if (!status.ok()) return Refuse(queue, command, status, /*resolved=*/false);
  status = checker_.Check(checked_);
  if (!status.ok()) return Refuse(queue, command, status, /*resolved=*/true);
  command.call = &checked_.call;
  if (const memory::Allocation* const poisoned = FindPoison(checked_); poisoned != nullptr) {
    const memory::Fault fault = RaisePoison(errors_, buffers_, queue.id, command.sequence, *poisoned);
    if (!SkipPoisonedElements(checked_, buffers_, fault)) {
      command.refused = true;
      PoisonOutputs(fault);
      return Outcome::kDone;
    }
  }
  bool parts = false;
  if (memory_.has_merged()) [[unlikely]] {
    const auto taken = TakeOwn(queue, command);
    if (!taken.ok()) return Refuse(queue, command, taken.status(), /*resolved=*/true);
    if (!*taken) return Outcome::kStalled;
    parts = !memory_.partings().empty();
  }
  if (memory_.is_watched()) [[unlikely]] {
    const auto held = Hold(queue, command);
    if (!held.ok() || !*held) memory_.ForgetPartings(queue, command.sequence);
    if (!held.ok()) return Refuse(queue, command, held.status(), /*resolved=*/true);
    if (!*held) {
      command.stall = records::Stall::kMovedOut;
      return Outcome::kStalled;
    }
  }
  if (parts) [[unlikely]]
    MoveOperands();
  RETURN_IF_ERROR(rerun_.Prepare(queue, checked_, command.sequence));
  if (parts) [[unlikely]] {
    absl::Status parted = memory_.Part(queue, command.sequence);
    if (!parted.ok()) return Refuse(queue, command, parted, /*resolved=*/true);
  }
  return Launch(queue, command);
}

// Of an output without elements, and of one that was not resolved, the whole buffer counts.
bool OpStream::WritesLent() const {
  for (uint32_t i = 0; i < checked_.outputs; ++i) {
    const handles::Buffer* const buffer = checked_.buffers[i];
    if (buffer == nullptr || buffer->allocation().block.address == nullptr) continue;
    if (lends_.IsLent(buffer->allocation().block.address, buffer->bytes)) return true;
  }
  return false;
}

absl::StatusOr<bool> OpStream::TakeOwn(Queue& queue, Command& command) {
  for (uint32_t i = 0; i < checked_.count(); ++i) {
    if (checked_.buffers[i] == nullptr) continue;
    ASSIGN_OR_RETURN(const bool awaits, memory_.AwaitsCopy(*checked_.buffers[i], queue));
    if (!awaits) continue;
    command.stall = records::Stall::kQueue;
    return false;
  }
  for (uint32_t i = 0; i < checked_.outputs; ++i) {
    if (checked_.buffers[i] == nullptr) continue;
    absl::Status taken = memory_.TakeOwn(queue, command.sequence, *checked_.buffers[i], /*fills=*/false);
    if (taken.ok()) continue;
    if (!absl::IsUnavailable(taken)) return taken;
    command.stall = records::Stall::kMemory;
    return false;
  }
  return true;
}

void OpStream::MoveOperands() {
  for (const Memory::Parting& parting : memory_.partings()) {
    const ptrdiff_t by = parting.own.address - parting.buffer->own.block.address;
    for (uint32_t i = 0; i < checked_.count(); ++i) {
      if (checked_.buffers[i] != parting.buffer) continue;
      checked_.operands[i].data = static_cast<std::byte*>(checked_.operands[i].data) + by;
    }
  }
}

absl::StatusOr<bool> OpStream::Hold(const Queue& queue, const Command& command) {
  held_.clear();
  for (uint32_t i = 0; i < checked_.count(); ++i) {
    if (checked_.buffers[i] == nullptr) continue;
    const memory::Block& block = checked_.buffers[i]->allocation().block;
    if (block.address != nullptr) held_.push_back({block.address, i < checked_.outputs});
  }
  for (const Memory::Parting& parting : memory_.partings())
    held_.push_back({parting.own.address, /*writes=*/true});
  return memory_.Hold(queue, command.sequence, held_);
}

absl::StatusOr<Outcome> OpStream::Launch(Queue& queue, Command& command) {
  kernels::OpCall& call = checked_.call;
  call.error_word = queue.completion->TakeErrorWord(command.sequence, call);
  if (call.error_word == nullptr) {
    command.stall = records::Stall::kErrorWords;
    return Outcome::kStalled;
  }
  absl::StatusOr<Outcome> outcome = PlanAndSubmit(queue, call, command);
  const bool done = outcome.ok() && *outcome == Outcome::kDone;
  if (!done) queue.completion->ReturnErrorWord(call);
  if (!outcome.ok()) return Refuse(queue, command, outcome.status(), /*resolved=*/true);
  command.heavy |= *outcome == Outcome::kStopped;
  if (!done) return outcome;
  state_.launches += planned_.launches.size();
  command.launches = &planned_.launches;
  command.heavy |= HasGroups(planned_.launches);
  const Completion::Launch launch = queue.completion->Launched(command.sequence, checked_);
  command.takes_long |= launch.takes_long;
  MarkOutputsWritten(command, launch.fault);
  return Outcome::kDone;
}

absl::StatusOr<Outcome> OpStream::PlanAndSubmit(Queue& queue, const kernels::OpCall& call, Command& command) {
  using kernels::Readiness;
  bool brought = false;
  const auto workspace = [&](size_t size) -> absl::StatusOr<void*> {
    ASSIGN_OR_RETURN(const memory::Block block, memory_.Take(queue, command.sequence, size));
    planned_.workspace.push_back(block);
    if (memory_.is_watched()) [[unlikely]] {
      // Together with the operands, which must not leave for it.
      held_.push_back({block.address, /*writes=*/true});
      ASSIGN_OR_RETURN(const bool held, memory_.Hold(queue, command.sequence, held_));
      if (!held) {
        brought = true;
        return absl::UnavailableError("memory returns to the device");
      }
    }
    return static_cast<void*>(block.address);
  };
  absl::StatusOr<Readiness> ready = Readiness::kReady;
  if (stopped_ == nullptr) ready = state_.library->Plan(call, workspace, planned_.launches, &owner_);
  records::Stall stall = records::Stall::kCompiling;
  if (absl::IsUnavailable(ready.status())) {  // memory may become free
    ready = Readiness::kCompiling;
    stall = brought ? records::Stall::kMovedOut : records::Stall::kMemory;
  }
  absl::StatusOr<bool> launched = ready.ok() && *ready == Readiness::kReady;
  if (launched.value()) {
    planned_.launches.SetIdealNs(queue.completion->IdealNs(call));
    const uint64_t began = command.timed ? NowNs() : 0;
    int turns = 1;
    launched = queue.device->LaunchFor(planned_.launches, rerun_.uses(), kMaxTurnNs,
                                       [&] { return turns++ < kMaxTurns && !state_.is_wanted(); });
    command.helped_ns += queue.device->TakeHelpedNs();
    if (command.timed) command.Launched(began, NowNs());
    if (launched.ok() && !*launched) {
      stopped_ = &queue;
      return Outcome::kStopped;
    }
  }
  stopped_ = nullptr;
  FreeWorkspace(queue, command.sequence);
  RETURN_IF_ERROR(ready.status());
  RETURN_IF_ERROR(launched.status());
  if (*launched) return Outcome::kDone;
  command.stall = stall;
  return Outcome::kStalled;
}

void OpStream::FreeWorkspace(Queue& queue, uint64_t sequence) {
  for (const memory::Block& block : planned_.workspace) queue.completion->Retire(block, sequence);
  planned_.workspace.clear();
}

// `resolved`: whether the call can be described.
Outcome OpStream::Refuse(const Queue& queue, Command& command, const absl::Status& why, bool resolved) {
  command.refused = true;
  const std::string_view aten = decoded_.row->aten;
  const std::string op =
      resolved ? ops::Describe(checked_.call) : std::string(aten.substr(0, aten.find('|')));
  PoisonOutputs(errors_.Raise(queue.id, command.sequence,
                              absl::Status(why.code(), absl::StrCat(op, ": ", why.message()))));
  return Outcome::kDone;
}

void OpStream::PoisonOutputs(memory::Fault fault) {
  for (uint32_t i = 0; i < checked_.outputs; ++i) {
    if (checked_.buffers[i] != nullptr) buffers_.PoisonSkipped(checked_.buffers[i]->allocation(), fault);
  }
}

// `fault`: a bad index, for which the kernel has left out some of the outputs' elements.
void OpStream::MarkOutputsWritten(const Command& command, std::optional<memory::Fault> fault) {
  for (uint32_t i = 0; i < checked_.outputs; ++i) {
    if (checked_.buffers[i] == nullptr) continue;
    memory::Allocation& output = checked_.buffers[i]->allocation();
    output.poison = memory::Poison::kNone;
    if (fault) [[unlikely]]
      buffers_.PoisonSkipped(output, *fault);
    checked_.buffers[i]->MarkWritten(command.sequence, ++state_.last_content);
  }
  // An allocation may also be an output of an element that was left out.
  for (const auto& [output, skipped] : checked_.skipped) buffers_.PoisonSkipped(*output, skipped);
}

}  // namespace xpud::stream
