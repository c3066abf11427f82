// Core's part that has host memory in common with the daemon, and copies from and to it.
#include <sys/mman.h>

#include <algorithm>

#include "proto/base/status_macros.h"
#include "proto/transport/host_memory.h"
#include "sdk/client/core.h"

namespace xpud::client {
namespace {

constexpr uint64_t kPieceBytes = 16 << 20;  // of a copy: others get their turn between two
constexpr uint64_t kMaxIdleBytes = uint64_t{2} << 30;

}  // namespace

absl::StatusOr<HostCache::Block*> Core::AllocateHost(uint64_t bytes) {
  RETURN_IF_ERROR(CheckUsable());
  if (visible_.empty()) return absl::FailedPreconditionError("there is no device to share memory with");
  absl::StatusOr<HostCache::Block*> block = TakeHost(bytes, /*sparing=*/false);
  if (!absl::IsResourceExhausted(block.status())) return block;
  RETURN_IF_ERROR(TrimHost(0, /*wait=*/true));
  return TakeHost(bytes, /*sparing=*/true);
}

absl::StatusOr<HostCache::Block*> Core::TakeHost(uint64_t bytes, bool sparing) {
  for (;;) {
    uint64_t more;
    {
      SpinLock lock(mutex_);
      HostCache::Block* const block =
          host_.Take(bytes, [&](uint32_t queue, uint64_t sequence) { return IsComplete(queue, sequence); });
      if (block != nullptr) return block;
      more = host_.NextMemoryBytes(bytes, sparing);
    }
    RETURN_IF_ERROR(AddHostMemory(more));
  }
}

// Without the lock: it takes as long as allocating the memory and giving it to the devices do.
absl::Status Core::AddHostMemory(uint64_t bytes) {
  ASSIGN_OR_RETURN(const UniqueFd fd, transport::CreateHostMemory(bytes));
  ASSIGN_OR_RETURN(Mapping mapping, Mapping::Map(fd, bytes, Access::kReadWrite));
#ifdef MADV_POPULATE_WRITE
  (void)madvise(mapping.data(), bytes, MADV_POPULATE_WRITE);  // spares page faults, where the kernel knows it
#endif
  uint64_t devices = 0;
  for (const uint32_t device : visible_) devices |= uint64_t{1} << device;
  const uint32_t id = next_memory_.fetch_add(1);
  RETURN_IF_ERROR(transport_->ShareHostMemory(id, fd, bytes, devices));
  SpinLock lock(mutex_);
  host_.Add(id, std::move(mapping));
  has_host_.store(true, std::memory_order_release);
  return absl::OkStatus();
}

void Core::FreeHost(HostCache::Block* block) {
  if (forked()) return;
  {
    SpinLock lock(mutex_);
    host_.Give(block);
    if (host_.free_bytes() <= kMaxIdleBytes) return;
  }
  (void)TrimHost(kMaxIdleBytes, /*wait=*/false);  // fails with the session, which gives everything back
}

absl::Status Core::TrimHost(uint64_t keep, bool wait) {
  const uint32_t queue = visible_.front();
  uint64_t last = 0;
  for (;;) {
    std::unique_ptr<HostCache::Memory> idle;
    {
      SpinLock lock(mutex_);
      if (host_.free_bytes() > keep)
        idle = host_.TakeIdle([&](uint32_t q, uint64_t sequence) { return IsComplete(q, sequence); });
    }
    if (idle == nullptr) break;
    const wire::ReleaseMemoryCommand command = {
        wire::Header(wire::CommandKind::kReleaseMemory, queue, sizeof(wire::ReleaseMemoryCommand)), idle->id,
        0};
    RETURN_IF_ERROR(UntilRoom([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      last = Append(command);
      if (last != 0) transport_->Publish();
      return last != 0;
    }));
  }
  if (!wait || last == 0) return absl::OkStatus();
  return transport_->Await({queue, last}, interrupt_);
}

bool Core::IsInHost(std::span<const std::byte> bytes) {
  if (!has_host_.load(std::memory_order_acquire)) [[likely]]
    return false;
  SpinLock lock(mutex_);
  return host_.Find(bytes).block != nullptr;
}

bool Core::UploadsInPlace(std::span<const std::byte> bytes, size_t most) {
  if (!has_host_.load(std::memory_order_acquire)) [[likely]]
    return false;
  SpinLock lock(mutex_);
  HostCache::Block* const block = host_.Find(bytes).block;
  return block != nullptr &&
         (bytes.size() > most ||
          !HostCache::IsUnused(*block, [&](uint32_t q, uint64_t at) { return IsComplete(q, at); }));
}

bool Core::IsHostMemory(const void* address) {
  return !forked() && IsInHost({static_cast<const std::byte*>(address), 1});
}

template <typename Command>
absl::Status Core::SendHost(Command command, std::span<const std::byte> bytes, uint64_t& sequence) {
  const uint64_t offset = command.offset;
  for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
    const auto piece = bytes.subspan(at, std::min<size_t>(kPieceBytes, bytes.size() - at));
    command.offset = offset + at;
    command.bytes = piece.size();
    bool found = true;
    RETURN_IF_ERROR(UntilRoom([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      const HostCache::Place place = host_.Find(piece);
      found = place.block != nullptr;
      if (!found) return true;
      command.host = {place.offset, place.memory, 0};
      sequence = Append(command);
      if (sequence == 0) return false;
      HostCache::Use(*place.block, command.header.queue, sequence);
      transport_->Publish();
      return true;
    }));
    if (!found) return absl::FailedPreconditionError("host memory was freed while it was copied");
  }
  return absl::OkStatus();
}

absl::Status Core::UploadHost(uint32_t queue, std::span<const std::byte> source, BufferHandle target,
                              uint64_t offset, uint64_t& sequence) {
  return SendHost(
      wire::UploadCommand{wire::Header(wire::CommandKind::kUpload, queue, sizeof(wire::UploadCommand)),
                          wire::ToWire(target),
                          offset,
                          {},
                          0},
      source, sequence);
}

absl::Status Core::DownloadHost(uint32_t queue, BufferHandle source, uint64_t offset,
                                std::span<std::byte> target, uint64_t& sequence) {
  return SendHost(
      wire::DownloadCommand{wire::Header(wire::CommandKind::kDownload, queue, sizeof(wire::DownloadCommand)),
                            wire::ToWire(source),
                            offset,
                            {},
                            0},
      target, sequence);
}

absl::Status Core::StartUpload(uint32_t queue, std::span<const std::byte> source, BufferHandle target,
                               uint64_t offset) {
  RETURN_IF_ERROR(CheckUsable());
  uint64_t sequence;
  if (!UploadsInPlace(source, wire::kMaxInlineUploadBytes)) return Upload(queue, source, target, offset);
  return UploadHost(queue, source, target, offset, sequence);
}

absl::Status Core::StartDownload(uint32_t queue, BufferHandle source, uint64_t offset,
                                 std::span<std::byte> target) {
  RETURN_IF_ERROR(CheckUsable());
  uint64_t sequence;
  if (target.empty() || !IsInHost(target)) return Download(queue, source, offset, target);
  return DownloadHost(queue, source, offset, target, sequence);
}

}  // namespace xpud::client
