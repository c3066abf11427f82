// Session's part that moves bytes: uploads, downloads and copies between buffers.
#include "absl/strings/str_cat.h"
#include "daemon/session/session.h"
#include "proto/base/status_macros.h"

namespace xpud::session {
namespace {

constexpr uint64_t kHeavyCopyBytes = 64 << 10;  // longer copies are looked at with the clock
constexpr uint64_t kLongCopyBytes = 64 << 20;   // and these are announced by themselves

absl::Status Poisoned() { return absl::FailedPreconditionError("reads a tensor whose computation failed"); }

}  // namespace

absl::StatusOr<std::byte*> Session::Part(Buffer* buffer, uint64_t offset, uint64_t bytes, uint32_t queue_id) {
  heavy_ |= bytes > kHeavyCopyBytes;
  long_ |= bytes > kLongCopyBytes;
  if (buffer == nullptr) return absl::InvalidArgumentError("a copy names a buffer that does not exist");
  if (buffer->device != queues_[queue_id].device)
    return absl::InvalidArgumentError("a copy names a buffer on another device than its queue");
  if (offset > buffer->bytes || bytes > buffer->bytes - offset) {
    return absl::InvalidArgumentError(absl::StrCat("a copy of ", bytes, " bytes at ", offset,
                                                   " leaves its buffer of ", buffer->bytes, " bytes"));
  }
  if (buffer->poison == Poison::kNoStorage)
    return absl::FailedPreconditionError("a copy names a buffer whose allocation failed");
  buffer->queues |= uint64_t{1} << queue_id;
  return buffer->block.address + offset;
}

std::byte* Session::StagingOn(uint32_t device) const {
  std::byte* const staging = transport_->staging().bytes.data();
  const executor::HostMemory* const shared = shared_[device].staging.get();
  return shared == nullptr ? staging : shared->OnDevice(staging);
}

absl::StatusOr<std::byte*> Session::HostPart(const wire::HostPlace& place, uint64_t bytes,
                                             uint32_t queue_id) {
  const uint32_t device = queues_[queue_id].device;
  HostMemories::Memory* const host = place.memory == 0 ? nullptr : host_.Find(place.memory);
  if (host == nullptr && place.memory != 0)
    return absl::InvalidArgumentError("a copy names host memory that is not shared");
  std::byte* const begin = host == nullptr ? StagingOn(device) : host->OnDevice(device);
  if (begin == nullptr)
    return absl::InvalidArgumentError("a copy names host memory that is not shared with its queue's device");
  const uint64_t size = host == nullptr ? transport_->staging().bytes.size() : host->bytes();
  if (place.offset > size || bytes > size - place.offset) {
    return absl::InvalidArgumentError(host == nullptr ? "a copy leaves the staging memory"
                                                      : "a copy leaves its host memory");
  }
  if (host != nullptr) host->queues |= uint64_t{1} << queue_id;
  return begin + place.offset;
}

void Session::FinishCopy(const absl::Status& status, Buffer* target, uint64_t bytes) {
  if (!status.ok()) {
    Raise(queues_[current_queue_], current_queue_, status);
    if (target != nullptr) PoisonSkipped(*target);
    return;
  }
  if (target == nullptr) return;
  if (target->poison == Poison::kFresh && bytes == target->bytes) target->poison = Poison::kNone;
  MarkWritten(*target);
}

absl::Status Session::UploadTo(wire::Handle handle, uint64_t offset, uint64_t bytes,
                               absl::FunctionRef<absl::Status(std::byte*)> append) {
  Buffer* buffer = buffers_.Find(handle);
  const auto target = Part(buffer, offset, bytes, current_queue_);
  absl::Status status = target.status();
  if (status.ok()) status = GuardWrite(current_queue_, *buffer);
  if (status.ok()) status = append(*target);
  if (status.ok()) counters_.uploaded_bytes += bytes;
  FinishCopy(status, buffer, bytes);
  return absl::OkStatus();
}

absl::Status Session::Upload(std::span<const std::byte> bytes) {
  wire::UploadCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  ASSIGN_OR_RETURN(const std::byte* source, HostPart(command.host, command.bytes, current_queue_));
  return UploadTo(command.buffer, command.offset, command.bytes, [&](std::byte* target) {
    return queues_[current_queue_].device_queue->Copy(target, source, command.bytes);
  });
}

absl::Status Session::UploadInline(std::span<const std::byte> bytes) {
  wire::UploadInlineCommand command;
  std::span<const std::byte> payload;
  RETURN_IF_ERROR(wire::DecodeUploadInline(bytes, command, payload));
  return UploadTo(command.buffer, command.offset, payload.size(), [&](std::byte* target) {
    return queues_[current_queue_].device_queue->Upload(target, payload);
  });
}

absl::Status Session::Download(std::span<const std::byte> bytes) {
  wire::DownloadCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  ASSIGN_OR_RETURN(std::byte * target, HostPart(command.host, command.bytes, current_queue_));
  Buffer* buffer = buffers_.Find(command.buffer);
  const auto source = Part(buffer, command.offset, command.bytes, current_queue_);
  absl::Status status = source.status();
  if (status.ok() && buffer->poison != Poison::kNone) status = Poisoned();
  if (status.ok()) status = queues_[current_queue_].device_queue->Copy(target, *source, command.bytes);
  if (status.ok()) buffer->last_read = sequence_ + 1;
  if (status.ok()) counters_.downloaded_bytes += command.bytes;
  FinishCopy(status, nullptr, 0);
  return absl::OkStatus();
}

absl::Status Session::ReleaseMemory(std::span<const std::byte> bytes) {
  wire::ReleaseMemoryCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  std::shared_ptr<HostMemories::Memory> memory = host_.Release(command.memory);
  if (memory == nullptr) return absl::InvalidArgumentError("host memory was released that is not shared");
  const uint64_t queues = memory->queues & open_queues_;
  if (queues != 0) Defer(queues, {}, 0, std::move(memory));
  return absl::OkStatus();
}

absl::Status Session::Copy(std::span<const std::byte> bytes) {
  wire::CopyCommand command;
  RETURN_IF_ERROR(wire::DecodeFixed(bytes, command));
  Buffer* source_buffer = buffers_.Find(command.source);
  Buffer* target_buffer = buffers_.Find(command.target);
  const auto source = Part(source_buffer, command.source_offset, command.bytes, current_queue_);
  const auto target = Part(target_buffer, command.target_offset, command.bytes, current_queue_);
  absl::Status status = source.ok() ? target.status() : source.status();
  if (status.ok() && source_buffer->poison != Poison::kNone) status = Poisoned();
  const bool overlaps = source_buffer == target_buffer &&
                        command.source_offset < command.target_offset + command.bytes &&
                        command.target_offset < command.source_offset + command.bytes;
  if (status.ok() && overlaps) status = absl::InvalidArgumentError("a copy's source and target overlap");
  if (status.ok()) status = GuardWrite(current_queue_, *target_buffer);
  if (status.ok()) status = queues_[current_queue_].device_queue->Copy(*target, *source, command.bytes);
  if (status.ok()) source_buffer->last_read = sequence_ + 1;
  FinishCopy(status, target_buffer, command.bytes);
  return absl::OkStatus();
}

}  // namespace xpud::session
