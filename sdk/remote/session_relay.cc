#include "sdk/remote/session_relay.h"

#include <grpcpp/grpcpp.h>
#include <pthread.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace xpud::remote {
namespace {

constexpr auto kIdle = std::chrono::seconds(1);  // before unused credit is asked for

std::span<const std::byte> BytesOf(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace

absl::Status SessionRelay::Run(const std::function<void()>& cancel) {
  std::thread sender([&] { SendLoop(cancel); });
  v1::ClientMessage message;
  absl::Status status;
  while (status.ok() && stream_.Read(&message)) status = Take(message);
  gone_.store(true);
  sender.join();
  return absl::IsInvalidArgument(status) ? status : absl::OkStatus();
}

absl::Status SessionRelay::Take(const v1::ClientMessage& message) {
  for (const v1::CreditKept& kept : message.kept()) TakeBack(kept);
  const std::span<std::byte> staging = transport_.staging();
  for (const v1::StagingPart& part : message.staging()) {
    if (part.offset() > staging.size() || part.data().size() > staging.size() - part.offset())
      return absl::InvalidArgumentError("a part of staging lies outside of it");
    std::memcpy(staging.data() + part.offset(), part.data().data(), part.data().size());
  }
  RETURN_IF_ERROR(ForEachCommand(BytesOf(message.commands()),
                                 [&](const auto& header, auto command) { return Put(header, command); }));
  transport_.Publish();
  return absl::OkStatus();
}

absl::Status SessionRelay::Put(const wire::CommandHeader& header, std::span<const std::byte> command) {
  std::byte* space = transport_.Reserve(command.size());
  if (space == nullptr) {
    transport_.Publish();
    RETURN_IF_ERROR(WaitInDaemon([&] { return (space = transport_.Reserve(command.size())) != nullptr; }));
  }
  ++sequence_;
  RETURN_IF_ERROR(Note(header, command));
  std::memcpy(space, command.data(), command.size());
  transport_.Commit(command.size());
  return absl::OkStatus();
}

absl::Status SessionRelay::Note(const wire::CommandHeader& header, std::span<const std::byte> command) {
  Awaited awaited = {sequence_, {}};
  if (header.kind == wire::CommandKind::kDownload) {
    awaited.part = StagingOf<wire::DownloadCommand>(command, transport_.staging().size());
  } else if (header.kind == wire::CommandKind::kTimestamp &&
             command.size() == sizeof(wire::TimestampCommand)) {
    wire::TimestampCommand stamp;
    std::memcpy(&stamp, command.data(), sizeof(stamp));
    awaited.slot = stamp.slot;
  }
  if ((awaited.part.bytes == 0 && awaited.slot >= wire::kMaxTimestamps) || header.queue >= wire::kMaxQueues)
    return absl::OkStatus();
  MutexLock lock(mutex_);
  awaited_bytes_ += awaited.part.bytes;
  if (awaited_bytes_ > transport_.staging().size())
    return absl::InvalidArgumentError("downloads under way fill more than staging");
  awaited_[header.queue].push_back(awaited);
  return absl::OkStatus();
}

absl::Status SessionRelay::WaitInDaemon(absl::FunctionRef<bool()> done) {
  return transport_.Wait(
      done, [&] { return gone_.load() ? absl::CancelledError("the client is gone") : absl::OkStatus(); });
}

void SessionRelay::SendLoop(const std::function<void()>& cancel) {
  pthread_setname_np(pthread_self(), "xpud-send");
  v1::ServerMessage message;
  absl::Status status;
  bool connected = true;
  while (status.ok() && connected) {
    status = WaitInDaemon([&] { return Changed(); });
    message.Clear();
    AddChanges(message);  // whatever ended it: errors come before the end
    if (!status.ok() && !gone_.load()) message.set_closed(std::string(status.message()));
    if (message.ByteSizeLong() != 0) connected = stream_.Write(message);
  }
  // A client that is told goes; one that does not is cut off.
  for (int i = 0; i < 100 && !gone_.load() && connected; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (!gone_.load()) cancel();
}

bool SessionRelay::Changed() {
  for (uint32_t q = 0; q < wire::kMaxQueues; ++q) {
    if (transport_.Completed(q) != queues_[q].completed || transport_.Errors(q) != queues_[q].errors)
      return true;
  }
  MutexLock lock(mutex_);
  for (uint32_t d = 0; d < devices_; ++d) {
    if (MemoryChanged(d) || IsIdle(d)) return true;
  }
  return false;
}

bool SessionRelay::MemoryChanged(uint32_t device) {
  const MemorySeen& seen = memory_[device];
  return transport_.AllocatedBytes(device) != seen.allocated ||
         transport_.AnsweredReserve(device) != seen.answered ||
         (!seen.gave_less && transport_.Credit(device) != seen.credit);
}

// It has more credit than it uses, and has used no more for a while.
bool SessionRelay::IsIdle(uint32_t device) const {
  const MemorySeen& seen = memory_[device];
  return !seen.gave_less && seen.credit > seen.allocated && Clock::now() - seen.since > kIdle;
}

void SessionRelay::AddChanges(v1::ServerMessage& message) {
  for (uint32_t q = 0; q < wire::kMaxQueues; ++q) AddQueue(q, message);
  for (uint32_t d = 0; d < devices_; ++d) AddMemory(d, message);
}

// An error is raised before its command is seen to have completed, so it is looked for after that.
void SessionRelay::AddQueue(uint32_t queue, v1::ServerMessage& message) {
  QueueSeen& seen = queues_[queue];
  const uint64_t completed = transport_.Completed(queue);
  const uint32_t errors = transport_.Errors(queue);
  if (completed == seen.completed && errors == seen.errors) return;
  v1::QueueState& state = *message.add_queues();
  state.set_queue(queue);
  state.set_completed(completed);
  if (errors != seen.errors) {
    const absl::Status error = transport_.LastError(queue);
    state.mutable_error()->set_code(static_cast<uint32_t>(error.code()));
    state.mutable_error()->set_message(std::string(error.message()));
  }
  seen = {completed, errors};
  MutexLock lock(mutex_);
  for (std::deque<Awaited>& awaited = awaited_[queue];
       !awaited.empty() && awaited.front().sequence <= completed; awaited.pop_front()) {
    const Awaited& done = awaited.front();
    awaited_bytes_ -= done.part.bytes;
    if (done.part.bytes != 0) {
      v1::StagingPart& part = *message.add_staging();
      part.set_offset(done.part.offset);
      part.set_data(transport_.staging().data() + done.part.offset, done.part.bytes);
    } else {
      v1::Timestamp& stamp = *message.add_timestamps();
      stamp.set_slot(done.slot);
      stamp.set_time_ns(transport_.Timestamp(done.slot));
    }
  }
}

// The client may use what credit it knows of without a word, so it is claimed here first: none of that is
// taken back. What it has not used for a while it is asked for.
void SessionRelay::AddMemory(uint32_t device, v1::ServerMessage& message) {
  MutexLock lock(mutex_);
  MemorySeen& seen = memory_[device];
  const bool gives_less = !MemoryChanged(device) && IsIdle(device);
  if (!gives_less && !MemoryChanged(device)) return;
  const uint64_t answered = transport_.AnsweredReserve(device);  // before the credit that it gave
  const uint64_t credit = gives_less ? seen.allocated : transport_.Credit(device);
  if (!gives_less && !transport_.Claim(device, credit)) return;  // it became less: the next round
  seen = {gives_less ? seen.credit : credit,
          transport_.AllocatedBytes(device),
          answered,
          seen.number + 1,
          gives_less,
          Clock::now()};
  v1::MemoryState& state = *message.add_memory();
  state.set_device(device);
  state.set_credit(credit);
  state.set_allocated(seen.allocated);
  state.set_answered(seen.answered);
  state.set_number(seen.number);
  state.set_gives_less(gives_less);
  if (const auto refusal = transport_.Refusal(device)) {
    state.mutable_refusal()->set_scope(static_cast<uint32_t>(refusal->scope));
    state.mutable_refusal()->set_limit(refusal->limit);
    state.mutable_refusal()->set_used(refusal->used);
  }
}

// Unless it has been told more meanwhile.
void SessionRelay::TakeBack(const v1::CreditKept& kept) {
  if (kept.device() >= devices_) return;
  MutexLock lock(mutex_);
  MemorySeen& seen = memory_[kept.device()];
  if (!seen.gave_less || kept.number() != seen.number || kept.credit() > seen.credit) return;
  seen.credit = kept.credit();
  (void)transport_.Claim(kept.device(), seen.credit);
}

}  // namespace xpud::remote
