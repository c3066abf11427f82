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
                        const Queue& queue, const Command& command) {
  if (!status.ok()) {
    const memory::Fault fault = errors_.Raise(queue.id, command.sequence, status);
    if (target != nullptr) buffers_.PoisonSkipped(target->allocation(), fault);
    return;
  }
  queue.completion->Moved(bytes, source == nullptr || target == nullptr);
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
  absl::Status status = PartOf(buffer, offset, bytes, queue, command).status();
  if (status.ok()) {
    const auto held = Hold(nullptr, buffer, /*fills=*/bytes == buffer->bytes, queue, command);
    if (held.ok() && !*held) return Outcome::kStalled;
    status = held.status();
  }
  if (status.ok()) status = PrepareWrite(*buffer, queue, command);
  if (status.ok()) status = append(buffer->allocation().block.address + offset);
  if (status.ok()) counters_.uploaded_bytes += bytes;
  Finish(status, nullptr, buffer, bytes, queue, command);
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
  Finish(status, buffer, nullptr, download.bytes, queue, command);
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
  Finish(status, source_buffer, target_buffer, copy.bytes, queue, command);
  return Outcome::kDone;
}

}  // namespace xpud::stream
