// DeviceSession's copies between host memory and buffers: directly where the bytes lie in memory that the
// daemon shares, else through staging.
#include <algorithm>
#include <deque>
#include <optional>

#include "proto/base/status_macros.h"
#include "proto/base/stream_copy.h"
#include "sdk/client/core.h"
#include "sdk/client/device_session.h"

namespace xpud::client {
namespace {

// Of uploads and downloads through staging. Several fit into staging, so that both ends copy at once.
constexpr uint64_t kPieceBytes = 512 << 10;
constexpr uint64_t kHostPieceBytes = 16 << 20;  // of copies of host memory: others get their turn between two
// An upload of so much host memory is faster through staging than in place, where it must be waited for.
constexpr uint64_t kStagedBytes = 64 << 10;

static_assert(kPieceBytes >= kStreamCopyBytes);

void CopyOut(std::span<std::byte> target, const std::byte* source) {
  if (target.size() < kStreamCopyBytes) {
    std::memcpy(target.data(), source, target.size());
  } else {
    StreamCopy(target.data(), source, target.size());
  }
}

}  // namespace

absl::Status DeviceSession::UploadInline(uint32_t queue, std::span<const std::byte> source,
                                         BufferHandle target, uint64_t offset) {
  const size_t bytes = sizeof(wire::UploadInlineCommand) + wire::PadTo8(source.size());
  const wire::UploadInlineCommand command = {wire::Header(wire::CommandKind::kUploadInline, queue, bytes),
                                             wire::ToWire(target), offset,
                                             static_cast<uint32_t>(source.size()), 0};
  return UntilRoom([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::byte* space = transport_->Reserve(bytes);
    if (space == nullptr) return false;
    std::memcpy(space, &command, sizeof(command));
    if (!source.empty()) std::memcpy(space + sizeof(command), source.data(), source.size());
    Committed(queue, bytes);
    transport_->Publish();
    return true;
  });
}

template <typename Command>
absl::StatusOr<Staging::Piece> DeviceSession::SendStaged(Command command, std::span<const std::byte> source,
                                                         bool held, uint64_t& sequence) {
  std::optional<Staging::Piece> piece;
  RETURN_IF_ERROR(UntilRoom([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    piece = staging_.Take(command.bytes,
                          [&](uint32_t queue, uint64_t before) { return IsComplete(queue, before); });
    return piece.has_value();
  }));
  if (!source.empty())
    std::memcpy(transport_->staging().data() + piece->offset, source.data(), source.size());
  command.host.offset = piece->offset;
  absl::Status sent = UntilRoom([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    sequence = Append(command);
    if (sequence == 0) return false;
    staging_.Use(piece->end, command.header.queue, sequence, held);
    transport_->Publish();
    return true;
  });
  if (sent.ok()) return *piece;
  SpinLock lock(mutex_);
  staging_.Cancel(piece->end);
  return sent;
}

absl::Status DeviceSession::UploadPiece(uint32_t queue, std::span<const std::byte> source,
                                        BufferHandle target, uint64_t offset) {
  uint64_t sequence;
  return SendStaged(
             wire::UploadCommand{wire::Header(wire::CommandKind::kUpload, queue, sizeof(wire::UploadCommand)),
                                 wire::ToWire(target),
                                 offset,
                                 {},
                                 source.size()},
             source, /*held=*/false, sequence)
      .status();
}

absl::Status DeviceSession::Upload(uint32_t queue, std::span<const std::byte> source, BufferHandle target,
                                   uint64_t offset) {
  RETURN_IF_ERROR(core_.CheckUsable());
  RETURN_IF_ERROR(core_.CheckIsOurs(target));
  if (core_.UploadsInPlace(source, kStagedBytes)) {
    uint64_t sequence = 0;
    RETURN_IF_ERROR(UploadHost(queue, source, target, offset, sequence));
    return AwaitCommand(queue, sequence);
  }
  if (source.size() <= wire::kMaxInlineUploadBytes) return UploadInline(queue, source, target, offset);
  for (size_t at = 0; at < source.size(); at += kPieceBytes) {
    const size_t bytes = std::min<size_t>(kPieceBytes, source.size() - at);
    RETURN_IF_ERROR(UploadPiece(queue, source.subspan(at, bytes), target, offset + at));
  }
  return absl::OkStatus();
}

absl::Status DeviceSession::Download(uint32_t queue, BufferHandle source, uint64_t offset,
                                     std::span<std::byte> target) {
  RETURN_IF_ERROR(core_.CheckUsable());
  RETURN_IF_ERROR(core_.CheckIsOurs(source));
  if (target.empty()) return Synchronize(queue);
  for (;;) {
    const uint32_t errors = ErrorsTaken(queue);
    RETURN_IF_ERROR(TryDownload(queue, source, offset, target));
    if (ErrorsTaken(queue) == errors) return absl::OkStatus();  // else it may have been this download's
  }
}

absl::Status DeviceSession::TryDownload(uint32_t queue, BufferHandle source, uint64_t offset,
                                        std::span<std::byte> target) {
  const auto await = [&](uint64_t sequence) { return Await(queue, sequence, std::nullopt); };
  if (core_.IsInHost(target)) {
    uint64_t sequence = 0;
    RETURN_IF_ERROR(DownloadHost(queue, source, offset, target, sequence));
    return await(sequence);
  }
  struct InFlight {
    Staging::Piece piece;
    uint64_t sequence;
    std::span<std::byte> target;
  };
  constexpr size_t kAhead = 4;  // pieces under way while one is copied out
  std::deque<InFlight> in_flight;
  absl::Status status;
  size_t at = 0;
  while (status.ok() && (at < target.size() || !in_flight.empty())) {
    if (at < target.size() && in_flight.size() < kAhead) {
      const size_t bytes = std::min<size_t>(kPieceBytes, target.size() - at);
      uint64_t sequence;
      const auto piece = SendStaged(wire::DownloadCommand{wire::Header(wire::CommandKind::kDownload, queue,
                                                                       sizeof(wire::DownloadCommand)),
                                                          wire::ToWire(source),
                                                          offset + at,
                                                          {},
                                                          bytes},
                                    {}, /*held=*/true, sequence);
      status = piece.status();
      if (piece.ok()) in_flight.push_back({*piece, sequence, target.subspan(at, bytes)});
      at += bytes;
      continue;
    }
    const InFlight first = in_flight.front();
    status = await(first.sequence);
    if (!status.ok()) break;
    CopyOut(first.target, transport_->staging().data() + first.piece.offset);
    status = transport_->CheckOpen();
    in_flight.pop_front();
    SpinLock lock(mutex_);
    staging_.Release(first.piece.end);
  }
  SpinLock lock(mutex_);
  for (const InFlight& rest : in_flight)
    staging_.Release(rest.piece.end);  // each comes free when its command has completed
  return status;
}

template <typename Command>
absl::Status DeviceSession::SendHost(Command command, std::span<const std::byte> bytes, uint64_t& sequence) {
  const uint64_t offset = command.offset;
  RETURN_IF_ERROR(core_.ShareHost(bytes, device_));
  for (size_t at = 0; at < bytes.size(); at += kHostPieceBytes) {
    const auto piece = bytes.subspan(at, std::min<size_t>(kHostPieceBytes, bytes.size() - at));
    command.offset = offset + at;
    command.bytes = piece.size();
    bool found = true;
    RETURN_IF_ERROR(UntilRoom([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      found = core_.UseHost(piece, device_, command.header.queue,
                            [&](const HostCache::Place& place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                              command.host = {place.offset, place.memory, 0};
                              return sequence = Append(command);
                            });
      if (found && sequence == 0) return false;
      transport_->Publish();
      return true;
    }));
    if (!found) return absl::FailedPreconditionError("host memory was freed while it was copied");
  }
  return absl::OkStatus();
}

absl::Status DeviceSession::UploadHost(uint32_t queue, std::span<const std::byte> source, BufferHandle target,
                                       uint64_t offset, uint64_t& sequence) {
  return SendHost(
      wire::UploadCommand{wire::Header(wire::CommandKind::kUpload, queue, sizeof(wire::UploadCommand)),
                          wire::ToWire(target),
                          offset,
                          {},
                          0},
      source, sequence);
}

absl::Status DeviceSession::DownloadHost(uint32_t queue, BufferHandle source, uint64_t offset,
                                         std::span<std::byte> target, uint64_t& sequence) {
  return SendHost(
      wire::DownloadCommand{wire::Header(wire::CommandKind::kDownload, queue, sizeof(wire::DownloadCommand)),
                            wire::ToWire(source),
                            offset,
                            {},
                            0},
      target, sequence);
}

absl::Status DeviceSession::StartUpload(uint32_t queue, std::span<const std::byte> source,
                                        BufferHandle target, uint64_t offset) {
  RETURN_IF_ERROR(core_.CheckUsable());
  RETURN_IF_ERROR(core_.CheckIsOurs(target));
  uint64_t sequence;
  if (!core_.UploadsInPlace(source, wire::kMaxInlineUploadBytes))
    return Upload(queue, source, target, offset);
  return UploadHost(queue, source, target, offset, sequence);
}

absl::Status DeviceSession::StartDownload(uint32_t queue, BufferHandle source, uint64_t offset,
                                          std::span<std::byte> target) {
  RETURN_IF_ERROR(core_.CheckUsable());
  RETURN_IF_ERROR(core_.CheckIsOurs(source));
  uint64_t sequence;
  if (target.empty() || !core_.IsInHost(target)) return Download(queue, source, offset, target);
  return DownloadHost(queue, source, offset, target, sequence);
}

}  // namespace xpud::client
