#include "daemon/stream/copy_stream.h"

#include "absl/strings/str_cat.h"
#include "daemon/stream/poison.h"
#include "proto/base/status_macros.h"
#include "proto/wire/decode.h"

namespace xpud::stream {
namespace {

using handles::Buffer;
using memory::Allocation;
using memory::Poison;

constexpr uint64_t kHeavyBytes = 64 << 10;  // the clock is read after a longer copy
constexpr uint64_t kLongBytes = 64 << 20;   // a longer copy keeps the device busy for long

}  // namespace

absl::StatusOr<std::byte*> CopyStream::PartOf(Buffer* buffer, uint64_t offset, uint64_t bytes,
                                              const Queue& queue, Command& command) {
  command.heavy |= bytes > kHeavyBytes;
  command.takes_long |= bytes > kLongBytes;
  command.copied_bytes = bytes;
  if (buffer == nullptr) return absl::InvalidArgumentError("a copy names a buffer that does not exist");
  if (offset > buffer->bytes || bytes > buffer->bytes - offset) {
    return absl::InvalidArgumentError(absl::StrCat("a copy of ", bytes, " bytes at ", offset,
                                                   " leaves its buffer of ", buffer->bytes, " bytes"));
  }
  const Allocation& allocation = buffer->allocation();
  if (allocation.poison == Poison::kNoStorage)
    return absl::FailedPreconditionError("a copy names a buffer whose allocation failed");
  buffer->queues |= uint64_t{1} << queue.id;
  return allocation.block.address + offset;
}

absl::StatusOr<std::byte*> CopyStream::HostPart(const wire::HostPlace& place, uint64_t bytes,
                                                const Queue& queue) {
  handles::DeviceHostMemories::Access* const host =
      place.memory == 0 ? nullptr : memories_.Find(place.memory);
  if (host == nullptr && place.memory != 0)
    return absl::InvalidArgumentError("a copy names host memory that is not shared with its device");
  const std::span<std::byte> staging = transport_.staging().bytes;
  std::byte* const begin = host == nullptr ? access_.InStaging(staging.data()) : host->on_device();
  const uint64_t size = host == nullptr ? staging.size() : host->bytes();
  if (place.offset > size || bytes > size - place.offset) {
    return absl::InvalidArgumentError(host == nullptr ? "a copy leaves the staging memory"
                                                      : "a copy leaves its host memory");
  }
  if (host != nullptr) host->queues |= uint64_t{1} << queue.id;
  return begin + place.offset;
}

bool CopyStream::MayRead(const Buffer* source, Buffer* target, const Queue& queue, const Command& command) {
  if (source == nullptr || source->allocation().poison == Poison::kNone) return true;
  const memory::Fault fault =
      RaisePoison(errors_, buffers_, queue.id, command.sequence, source->allocation());
  if (target != nullptr) buffers_.PoisonSkipped(target->allocation(), fault);
  return false;
}

void CopyStream::Finish(const absl::Status& status, Buffer* source, Buffer* target, uint64_t bytes,
                        Completion::Way way, const Queue& queue, const Command& command) {
  if (!status.ok()) {
    const memory::Fault fault = errors_.Raise(queue.id, command.sequence, status);
    if (target != nullptr) buffers_.PoisonSkipped(target->allocation(), fault);
    return;
  }
  queue.completion->Moved(bytes, way);
  if (target == nullptr) return;
  queue.completion->Copied(command.sequence, source, *target, bytes == target->bytes);
  Allocation& written = target->allocation();
  if (written.poison == Poison::kFresh && bytes == target->bytes) written.poison = Poison::kNone;
  target->MarkWritten(command.sequence, ++state_.last_content);
}

absl::StatusOr<bool> CopyStream::Hold(const Buffer* source, Buffer* target, bool fills, Queue& queue,
                                      Command& command) {
  if (memory_.has_merged()) [[unlikely]] {
    ASSIGN_OR_RETURN(const bool taken, TakeOwn(source, target, fills, queue, command));
    if (!taken) return false;
  }
  if (!memory_.is_watched()) [[likely]]
    return true;
  memory::Residency::Operand blocks[3];
  size_t count = 0;
  for (const Buffer* const buffer :
       {static_cast<const Buffer*>(source), static_cast<const Buffer*>(target)}) {
    if (buffer != nullptr) blocks[count++] = {buffer->allocation().block.address, buffer == target};
  }
  for (const Memory::Parting& parting : memory_.partings())
    blocks[count++] = {parting.own.address, /*writes=*/true};
  const auto held = memory_.Hold(queue, command.sequence, {blocks, count});
  if (!held.ok() || !*held) memory_.ForgetPartings(queue, command.sequence);
  if (held.ok() && !*held) command.stall = records::Stall::kMovedOut;
  return held;
}

absl::StatusOr<bool> CopyStream::TakeOwn(const Buffer* source, Buffer* target, bool fills, Queue& queue,
                                         Command& command) {
  for (const Buffer* const buffer : {source, static_cast<const Buffer*>(target)}) {
    if (buffer == nullptr) continue;
    ASSIGN_OR_RETURN(const bool awaits, memory_.AwaitsCopy(*buffer, queue));
    if (!awaits) continue;
    command.stall = records::Stall::kQueue;
    return false;
  }
  if (target == nullptr) return true;
  absl::Status taken = memory_.TakeOwn(queue, command.sequence, *target, fills);
  if (taken.ok()) return true;
  if (!absl::IsUnavailable(taken)) return taken;
  command.stall = records::Stall::kMemory;
  return false;
}

absl::Status CopyStream::PrepareWrite(Buffer& target, Queue& queue, const Command& command) {
  absl::Status prepared = rerun_.PrepareWrite(queue, target);
  if (memory_.partings().empty()) [[likely]]
    return prepared;
  if (prepared.ok()) return memory_.Part(queue, command.sequence);
  memory_.ForgetPartings(queue, command.sequence);
  return prepared;
}

absl::StatusOr<Outcome> CopyStream::UploadTo(wire::Handle handle, uint64_t offset, uint64_t bytes,
                                             Queue& queue, Command& command,
                                             absl::FunctionRef<absl::Status(std::byte*)> append) {
  Buffer* buffer = buffers_.Find(handle);
  const auto target = PartOf(buffer, offset, bytes, queue, command);
  if (WritesLent(target, bytes, command)) return Outcome::kStalled;
  absl::Status status = target.status();
  if (status.ok()) {
    const auto held = Hold(nullptr, buffer, /*fills=*/bytes == buffer->bytes, queue, command);
    if (held.ok() && !*held) return Outcome::kStalled;
    status = held.status();
  }
  if (status.ok()) status = PrepareWrite(*buffer, queue, command);
  if (status.ok()) status = append(buffer->allocation().block.address + offset);
  if (status.ok()) counters_.uploaded_bytes += bytes;
  Finish(status, nullptr, buffer, bytes, Completion::Way::kHost, queue, command);
  // An upload in pieces ends here.
  if (status.ok() && offset + bytes == buffer->bytes) memory_.Uploaded(handle, *buffer);
  return Outcome::kDone;
}

absl::StatusOr<Outcome> CopyStream::Upload(std::span<const std::byte> bytes, Queue& queue, Command& command) {
  wire::UploadCommand upload;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, upload));
  ASSIGN_OR_RETURN(const std::byte* source, HostPart(upload.host, upload.bytes, queue));
  return UploadTo(upload.buffer, upload.offset, upload.bytes, queue, command,
                  [&](std::byte* target) { return queue.device->Copy(target, source, upload.bytes); });
}

absl::StatusOr<Outcome> CopyStream::UploadInline(std::span<const std::byte> bytes, Queue& queue,
                                                 Command& command) {
  wire::UploadInlineCommand upload;
  std::span<const std::byte> payload;
  RETURN_IF_ERROR(wire::DecodeUploadInline(bytes, upload, payload));
  return UploadTo(upload.buffer, upload.offset, payload.size(), queue, command,
                  [&](std::byte* target) { return queue.device->Upload(target, payload); });
}

absl::StatusOr<Outcome> CopyStream::Download(std::span<const std::byte> bytes, Queue& queue,
                                             Command& command) {
  wire::DownloadCommand download;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, download));
  ASSIGN_OR_RETURN(std::byte * target, HostPart(download.host, download.bytes, queue));
  Buffer* buffer = buffers_.Find(download.buffer);
  if (!MayRead(buffer, nullptr, queue, command)) return Outcome::kDone;
  const auto source = PartOf(buffer, download.offset, download.bytes, queue, command);
  absl::Status status = source.status();
  if (status.ok()) {
    const auto held = Hold(buffer, nullptr, /*fills=*/false, queue, command);
    if (held.ok() && !*held) return Outcome::kStalled;
    status = held.status();
  }
  if (status.ok()) status = queue.device->Copy(target, *source, download.bytes);
  if (status.ok()) buffer->last_read = command.sequence;
  if (status.ok()) counters_.downloaded_bytes += download.bytes;
  Finish(status, buffer, nullptr, download.bytes, Completion::Way::kHost, queue, command);
  return Outcome::kDone;
}

absl::StatusOr<Outcome> CopyStream::Copy(std::span<const std::byte> bytes, Queue& queue, Command& command) {
  wire::CopyCommand copy;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, copy));
  Buffer* source_buffer = buffers_.Find(copy.source);
  Buffer* target_buffer = buffers_.Find(copy.target);
  if (!MayRead(source_buffer, target_buffer, queue, command)) return Outcome::kDone;
  const auto source = PartOf(source_buffer, copy.source_offset, copy.bytes, queue, command);
  const auto target = PartOf(target_buffer, copy.target_offset, copy.bytes, queue, command);
  if (WritesLent(target, copy.bytes, command)) return Outcome::kStalled;
  absl::Status status = source.ok() ? target.status() : source.status();
  const bool overlaps = source_buffer == target_buffer &&
                        copy.source_offset < copy.target_offset + copy.bytes &&
                        copy.target_offset < copy.source_offset + copy.bytes;
  if (status.ok() && overlaps) status = absl::InvalidArgumentError("a copy's source and target overlap");
  if (status.ok()) {
    const auto held =
        Hold(source_buffer, target_buffer, /*fills=*/copy.bytes == target_buffer->bytes, queue, command);
    if (held.ok() && !*held) return Outcome::kStalled;
    status = held.status();
  }
  if (status.ok()) status = PrepareWrite(*target_buffer, queue, command);
  if (status.ok()) {
    std::byte* const written = target_buffer->allocation().block.address + copy.target_offset;
    status = queue.device->Copy(written, *source, copy.bytes);
  }
  if (status.ok()) source_buffer->last_read = command.sequence;
  Finish(status, source_buffer, target_buffer, copy.bytes, Completion::Way::kWithin, queue, command);
  return Outcome::kDone;
}

// ---- copies between devices

bool CopyStream::WritesLent(const absl::StatusOr<std::byte*>& target, uint64_t bytes,
                            Command& command) const {
  if (lends_.empty() || !target.ok() || !lends_.IsLent(*target, bytes)) [[likely]]
    return false;
  command.stall = records::Stall::kLent;
  return true;
}

absl::Status CopyStream::ErrorOf(const Allocation& poisoned) const {
  const memory::SharedAllocation* const of_another = buffers_.PoisonedByAnother(poisoned);
  return of_another != nullptr ? of_another->error : errors_.ErrorOf(poisoned.cause);
}

absl::StatusOr<Outcome> CopyStream::Lend(std::span<const std::byte> bytes, Queue& queue, Command& command) {
  wire::LendCommand lend;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, lend));
  Buffer* const source = buffers_.Find(lend.buffer);
  if (source == nullptr) return absl::InvalidArgumentError("a loan names a buffer that does not exist");
  if (lend.bytes == 0 || lend.offset > source->bytes || lend.bytes > source->bytes - lend.offset) {
    return absl::InvalidArgumentError(absl::StrCat("a loan of ", lend.bytes, " bytes at ", lend.offset,
                                                   " is empty or leaves its buffer of ", source->bytes,
                                                   " bytes"));
  }
  if (!lends_.loans().IsNext(lends_.lane(), lend.loan)) {
    return absl::InvalidArgumentError(
        absl::StrCat("loan ", lend.loan, " does not come after the ring's last one"));
  }
  command.heavy = true;
  command.takes_long = true;  // the other device waits for its end
  const Allocation& allocation = source->allocation();
  absl::Status error = allocation.poison == Poison::kNone ? absl::OkStatus() : ErrorOf(allocation);
  memory::Chunk* chunk = nullptr;
  if (error.ok()) {
    const auto held = Hold(source, nullptr, /*fills=*/false, queue, command);
    if (held.ok() && !*held) return Outcome::kStalled;
    const auto exported = held.ok() ? memory_.Export(allocation.block) : held.status();
    if (exported.ok()) chunk = *exported;
    error = exported.status();
  }
  const std::byte* const begin = chunk == nullptr ? nullptr : allocation.block.address + lend.offset;
  Lends::Lent* const lent =
      lends_.Add(lend.loan, {queue.id, command.sequence}, begin, lend.bytes, chunk, error);
  if (lent == nullptr) {
    command.stall = records::Stall::kLent;
    return Outcome::kStalled;
  }
  source->queues |= uint64_t{1} << queue.id;
  source->last_read = command.sequence;
  if (chunk != nullptr) queue.completion->Lent(command.sequence, *source, lent->contents);
  return Outcome::kDone;
}

absl::StatusOr<Outcome> CopyStream::CopyFrom(const wire::CopyFromCommand& copy, uint32_t source, Queue& queue,
                                             Command& command) {
  using State = handles::Loan::State;
  Buffer* const buffer = buffers_.Find(copy.target);
  if (buffer == nullptr) return absl::InvalidArgumentError("a copy names a buffer that does not exist");
  if (copy.offset > buffer->bytes || copy.bytes > buffer->bytes - copy.offset) {
    return absl::InvalidArgumentError(absl::StrCat("a copy of ", copy.bytes, " bytes at ", copy.offset,
                                                   " leaves its buffer of ", buffer->bytes, " bytes"));
  }
  handles::Loans& loans = lends_.loans();
  loans.Await(lends_.lane());
  ASSIGN_OR_RETURN(const std::shared_ptr<handles::Loan> loan, loans.Find(source, copy.loan));
  if (loan != nullptr && (loan->bytes() != copy.bytes || loan->state() == State::kBorrowed)) {
    return absl::InvalidArgumentError(absl::StrCat("a copy of ", copy.bytes, " bytes names loan ", copy.loan,
                                                   " of ", loan->bytes(), ", or another copy names it, too"));
  }
  command.stall = records::Stall::kPeer;
  if (loan == nullptr || loan->state() != State::kReady) return Outcome::kStalled;
  const auto target = PartOf(buffer, copy.offset, copy.bytes, queue, command);
  if (WritesLent(target, copy.bytes, command)) return Outcome::kStalled;
  absl::Status status = loan->error();
  status.Update(target.status());
  if (status.ok()) {
    const auto held = Hold(nullptr, buffer, /*fills=*/copy.bytes == buffer->bytes, queue, command);
    if (held.ok() && !*held) return Outcome::kStalled;
    status = held.status();
  }
  const std::byte* mapped = nullptr;
  if (status.ok()) {
    const auto map = state_.peers->Map(loan->memory());
    if (!map.ok()) memory_.ForgetPartings(queue, command.sequence);
    command.stall = records::Stall::kMemory;
    if (absl::IsUnavailable(map.status())) return Outcome::kStalled;  // the executor is being replaced
    status = map.status();
    if (map.ok()) mapped = *map;
  }
  command.stall = records::Stall::kPeer;
  if (!loans.Borrow(*loan)) {
    memory_.ForgetPartings(queue, command.sequence);
    return Outcome::kStalled;  // the session ends
  }
  borrows_.Add(loan, {queue.id, command.sequence});
  command.takes_long = true;  // the source's memory is not free before
  if (status.ok()) status = PrepareWrite(*buffer, queue, command);
  if (status.ok()) {
    std::byte* const written = buffer->allocation().block.address + copy.offset;
    status = queue.device->Copy(written, mapped + loan->offset(), loan->bytes());
  }
  if (status.ok()) state_.peer_bytes += copy.bytes;
  Finish(status, nullptr, buffer, copy.bytes, Completion::Way::kPeer, queue, command);
  return Outcome::kDone;
}

}  // namespace xpud::stream
