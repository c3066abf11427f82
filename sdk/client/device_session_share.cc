// Memory that the session shares with other processes: the commands that the daemon answers, and what is
// charged.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "sdk/client/core.h"
#include "sdk/client/device_session.h"

namespace xpud::client {
namespace {

absl::Status NoTicket() {
  return absl::NotFoundError(
      "memory of another process cannot be received: its ticket is unknown or was taken, its time is over "
      "(60 s "
      "after the sender's end), or it is another user's or device's");
}

}  // namespace

absl::Status DeviceSession::CheckShares() const {
  RETURN_IF_ERROR(core_.CheckUsable());
  if (core_.shares_memory()) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("the xpud daemon at ", core_.address(), " (version ", core_.daemon_version(),
                   ") does not share memory between processes; update it to at least this client's version"));
}

std::optional<wire::Answer> DeviceSession::AnswerTo(const Request& request) const {
  const uint64_t word = transport_->Timestamp(request.slots[0]);
  const auto answer = static_cast<wire::Answer>(word >> 56 & 0x7f);
  if (word != wire::AnswerOf(request.sequence, answer)) return std::nullopt;
  return answer;
}

absl::StatusOr<DeviceSession::AnswerWords> DeviceSession::Ask(
    Request request, absl::FunctionRef<absl::StatusOr<uint64_t>(Request&)> append) {
  {
    SpinLock lock(mutex_);
    Settle();
    if (free_timestamps_.size() < wire::kAnswerSlots) {
      return absl::ResourceExhaustedError(absl::StrCat("a session can hold at most ", wire::kMaxTimestamps,
                                                       " events with timing, and sharing memory takes ",
                                                       wire::kAnswerSlots, " for a moment"));
    }
    for (uint32_t& slot : request.slots) {
      slot = free_timestamps_.back();
      free_timestamps_.pop_back();
    }
  }
  std::list<Request>::iterator sent;
  absl::Status refused;
  absl::Status status = UntilRoom([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const absl::StatusOr<uint64_t> sequence = append(request);
    refused = sequence.status();
    if (!refused.ok()) return true;
    if (*sequence == 0) return false;
    request.sequence = *sequence;
    transport_->Publish();
    sent = requests_.insert(requests_.end(), request);
    return true;
  });
  status.Update(refused);
  if (!status.ok()) {
    SpinLock lock(mutex_);
    free_timestamps_.insert(free_timestamps_.end(), request.slots.begin(), request.slots.end());
    return status;
  }
  absl::Status waited =
      Noted(transport_->Wait([&] { return AnswerTo(request).has_value(); }, core_.interrupt()));
  // What was read of a session that has ended may have been emptied.
  if (waited.ok()) waited = transport_->CheckOpen();
  SpinLock lock(mutex_);
  if (!waited.ok()) {
    sent->abandoned = true;
    return waited;
  }
  const wire::Answer answer = *AnswerTo(request);
  SettleOne(*sent, answer);
  AnswerWords words = {answer, {}};
  for (size_t i = 0; i < words.words.size(); ++i)
    words.words[i] = transport_->Timestamp(request.slots[i + 1]);
  free_timestamps_.insert(free_timestamps_.end(), request.slots.begin(), request.slots.end());
  requests_.erase(sent);
  return words;
}

void DeviceSession::SettleOne(Request& request, wire::Answer answer) {
  if (std::exchange(request.settled, true) || request.attaches || request.handle.id == 0) return;
  const auto sharing = sharing_.find(request.handle.id);
  // It may have been freed since.
  if (sharing == sharing_.end() || sharing->second.generation != request.handle.generation) return;
  Sharing& state = sharing->second;
  --state.asked;
  if (state.shared) return;
  const uint64_t bytes = RoundSize(request.bytes);
  if (answer == wire::Answer::kDone) {
    state.shared = true;
    sharing_bytes_ -= bytes;
    charged_ -= bytes;
    transport_->Claim(charged_);
  } else if (state.asked == 0) {
    sharing_bytes_ -= bytes;
    sharing_.erase(sharing);
  }
}

bool DeviceSession::FreeAttached(const Request& request) {
  const wire::FreeCommand command = {wire::Header(wire::CommandKind::kFree, 0, sizeof(wire::FreeCommand)),
                                     wire::ToWire(request.handle)};
  if (Append(command) == 0) return false;
  ids_.Return(request.handle);
  return true;
}

void DeviceSession::Settle() {
  for (auto request = requests_.begin(); request != requests_.end();) {
    const std::optional<wire::Answer> answer = AnswerTo(*request);
    if (answer) SettleOne(*request, *answer);
    if (!answer || !request->abandoned || (request->attaches && !FreeAttached(*request))) {
      ++request;
      continue;
    }
    free_timestamps_.insert(free_timestamps_.end(), request->slots.begin(), request->slots.end());
    request = requests_.erase(request);
  }
}

absl::StatusOr<Ticket> DeviceSession::Share(BufferHandle handle, uint64_t bytes) {
  RETURN_IF_ERROR(CheckShares());
  RETURN_IF_ERROR(core_.CheckIsOurs(handle));
  ASSIGN_OR_RETURN(
      const AnswerWords answer,
      Ask({.handle = handle, .bytes = bytes},
          [&](Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::StatusOr<uint64_t> {
            wire::ShareCommand command = {
                wire::Header(wire::CommandKind::kShare, 0, sizeof(wire::ShareCommand)),
                wire::ToWire(handle),
                {}};
            std::copy(request.slots.begin(), request.slots.end(), command.slots);
            const uint64_t sequence = Append(command);
            if (sequence == 0) return sequence;
            Sharing& sharing = sharing_[handle.id];
            sharing.generation = handle.generation;
            if (sharing.asked++ == 0 && !sharing.shared) sharing_bytes_ += RoundSize(bytes);
            return sequence;
          }));
  switch (answer.answer) {
    case wire::Answer::kDone:
      return Ticket{{answer.words[0], answer.words[1]}, answer.words[2], bytes, at_daemon_};
    case wire::Answer::kTicketLimit:
      return absl::ResourceExhaustedError(
          absl::StrCat("memory of device ", device_, " cannot be sent to another process: ", answer.words[0],
                       " of this user's tensors were sent and not yet received, which is the limit"));
    default:
      return absl::InvalidArgumentError("a buffer without memory cannot be shared: its allocation failed");
  }
}

absl::StatusOr<BufferHandle> DeviceSession::Attach(const Ticket& ticket, uint64_t& bytes) {
  RETURN_IF_ERROR(CheckShares());
  BufferHandle attached;
  const absl::StatusOr<AnswerWords> answer =
      Ask({.attaches = true},
          [&](Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::StatusOr<uint64_t> {
            // New ids come in the order of their commands.
            if (transport_->Reserve(sizeof(wire::AttachCommand)) == nullptr) return 0;
            ASSIGN_OR_RETURN(attached, ids_.Take());
            request.handle = attached;
            wire::AttachCommand command = {
                wire::Header(wire::CommandKind::kAttach, 0, sizeof(wire::AttachCommand)),
                wire::ToWire(attached),
                {ticket.key[0], ticket.key[1]},
                {}};
            std::copy(request.slots.begin(), request.slots.end(), command.slots);
            return Append(command);
          });
  RETURN_IF_ERROR(answer.status());
  if (answer->answer == wire::Answer::kDone) {
    bytes = answer->words[0];
    SpinLock lock(mutex_);
    sharing_[attached.id] = {.generation = attached.generation, .shared = true};
    Count(bytes);
    return attached;
  }
  RETURN_IF_ERROR(UntilRoom([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return FreeAttached({.attaches = true, .handle = attached});
  }));
  if (answer->answer == wire::Answer::kBeyondQuota) {
    return OutOfMemory(ticket.bytes, device_, total_memory_,
                       {MemoryShortage::Scope::kProcess, answer->words[0], answer->words[1]});
  }
  return NoTicket();
}

absl::Status DeviceSession::ReturnTicket(const Ticket& ticket) {
  RETURN_IF_ERROR(CheckShares());
  const absl::StatusOr<AnswerWords> answer =
      Ask({}, [&](Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::StatusOr<uint64_t> {
        wire::AttachCommand command = {
            wire::Header(wire::CommandKind::kAttach, 0, sizeof(wire::AttachCommand)),
            {},
            {ticket.key[0], ticket.key[1]},
            {}};
        std::copy(request.slots.begin(), request.slots.end(), command.slots);
        return Append(command);
      });
  RETURN_IF_ERROR(answer.status());
  return answer->answer == wire::Answer::kDone ? absl::OkStatus() : NoTicket();
}

}  // namespace xpud::client
