#include "daemon/executor/process/private_ring.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>

#include "proto/base/descriptor_error.h"
#include "proto/base/status_macros.h"

namespace xpud::executor::process {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kPagesBytes = (sizeof(SharedPages) + kPage - 1) / kPage * kPage;

}  // namespace

absl::StatusOr<PrivateRing> PrivateRing::Create() {
  ASSIGN_OR_RETURN(UniqueFd fd, CreateSealedMemfd("xpud-executor", kPagesBytes + kRingBytes));
  UniqueFd doorbell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doorbell.valid()) return DescriptorError("eventfd");
  return Open(std::move(fd), std::move(doorbell));
}

absl::StatusOr<PrivateRing> PrivateRing::Open(UniqueFd fd, UniqueFd doorbell) {
  PrivateRing ring;
  ASSIGN_OR_RETURN(ring.pages_, Mapping::Map(fd, kPagesBytes, Access::kReadWrite));
  ASSIGN_OR_RETURN(ring.ring_, Mapping::MapMirrored(fd, kRingBytes, Access::kReadWrite, kPagesBytes));
  ring.fd_ = std::move(fd);
  ring.doorbell_ = std::move(doorbell);
  return ring;
}

// Never more than the ring, whatever head the executor has written.
size_t PrivateRing::Backlog(uint64_t head) const { return std::min<uint64_t>(position_ - head, kRingBytes); }

bool PrivateRing::BacklogIsBelow(size_t bytes) {
  if (Backlog(known_head_) < bytes) return true;
  known_head_ = control().head.load(std::memory_order_acquire);
  return Backlog(known_head_) < bytes;
}

std::byte* PrivateRing::Reserve(size_t bytes) {
  const bool fits = bytes <= kRingBytes && BacklogIsBelow(kRingBytes - bytes + 1);
  return fits ? ring_.data() + position_ % kRingBytes : nullptr;
}

void PrivateRing::Commit(size_t bytes) {
  position_ += bytes;
  control().tail.store(position_, std::memory_order_release);
  if (control().sleeping.load(std::memory_order_relaxed) != 0) eventfd_write(doorbell_.get(), 1);
}

bool PrivateRing::Send(std::span<const std::byte> messages) {
  std::byte* const target = Reserve(messages.size());
  if (target == nullptr) return false;
  std::memcpy(target, messages.data(), messages.size());
  Commit(messages.size());
  return true;
}

void PrivateRing::Wake() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (control().sleeping.load(std::memory_order_relaxed) != 0) eventfd_write(doorbell_.get(), 1);
}

std::span<const std::byte> PrivateRing::Pending() const {
  return {ring_.data() + position_ % kRingBytes, control().tail.load(std::memory_order_acquire) - position_};
}

const Message* PrivateRing::Next() const {
  const std::span<const std::byte> pending = Pending();
  return pending.empty() ? nullptr : reinterpret_cast<const Message*>(pending.data());
}

void PrivateRing::Take(size_t bytes) {
  position_ += bytes;
  control().head.store(position_, std::memory_order_release);
}

void PrivateRing::Sleep(int milliseconds) {
  control().sleeping.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (control().tail.load(std::memory_order_relaxed) == position_) {
    pollfd waits = {doorbell_.get(), POLLIN, 0};
    poll(&waits, 1, milliseconds);
  }
  control().sleeping.store(0, std::memory_order_relaxed);
  eventfd_t count;
  eventfd_read(doorbell_.get(), &count);
}

}  // namespace xpud::executor::process
