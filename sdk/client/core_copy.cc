// Core's part that copies between the host's memory and buffers, by way of staging.
#include <algorithm>
#include <deque>
#include <optional>

#include "proto/base/status_macros.h"
#include "proto/base/stream_copy.h"
#include "sdk/client/core.h"

namespace xpud::client {
namespace {

constexpr uint64_t kPieceBytes =
    512 << 10;  // of uploads and downloads: several fit into staging, so both ends copy at once
constexpr uint64_t kStagedBytes =
    64 << 10;  // so much of host memory is sooner copied to staging than waited for

static_assert(kPieceBytes >= kStreamCopyBytes);

void CopyOut(std::span<std::byte> target, const std::byte* source) {
  if (target.size() < kStreamCopyBytes) {
    std::memcpy(target.data(), source, target.size());
  } else {
    StreamCopy(target.data(), source, target.size());
  }
}

}  // namespace

absl::Status Core::UploadInline(uint32_t queue, std::span<const std::byte> source, BufferHandle target,
                                uint64_t offset) {
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
absl::StatusOr<Staging::Piece> Core::SendStaged(Command command, std::span<const std::byte> source, bool held,
                                                uint64_t& sequence) {
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

absl::Status Core::UploadPiece(uint32_t queue, std::span<const std::byte> source, BufferHandle target,
                               uint64_t offset) {
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

absl::Status Core::Upload(uint32_t queue, std::span<const std::byte> source, BufferHandle target,
                          uint64_t offset) {
  RETURN_IF_ERROR(CheckUsable());
  if (UploadsInPlace(source, kStagedBytes)) {
    uint64_t sequence = 0;
    RETURN_IF_ERROR(UploadHost(queue, source, target, offset, sequence));
    return transport_->Await({queue, sequence}, interrupt_);
  }
  if (source.size() <= wire::kMaxInlineUploadBytes) return UploadInline(queue, source, target, offset);
  for (size_t at = 0; at < source.size(); at += kPieceBytes) {
    const size_t bytes = std::min<size_t>(kPieceBytes, source.size() - at);
    RETURN_IF_ERROR(UploadPiece(queue, source.subspan(at, bytes), target, offset + at));
  }
  return absl::OkStatus();
}

absl::Status Core::Download(uint32_t queue, BufferHandle source, uint64_t offset,
                            std::span<std::byte> target) {
  RETURN_IF_ERROR(CheckUsable());
  if (target.empty()) return Synchronize(queue);
  if (IsInHost(target)) {
    uint64_t sequence = 0;
    RETURN_IF_ERROR(DownloadHost(queue, source, offset, target, sequence));
    return Await(queue, sequence);
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
    status = Await(queue, first.sequence);
    if (!status.ok()) break;
    CopyOut(first.target, transport_->staging().data() + first.piece.offset);
    in_flight.pop_front();
    SpinLock lock(mutex_);
    staging_.Release(first.piece.end);
  }
  SpinLock lock(mutex_);
  for (const InFlight& rest : in_flight)
    staging_.Release(rest.piece.end);  // each comes free when its command has completed
  return status;
}

}  // namespace xpud::client
