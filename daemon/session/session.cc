#include "daemon/session/session.h"

#include <sys/eventfd.h>

#include "daemon/tenant/nice.h"

#include <atomic>
#include <utility>

#include "proto/base/clock.h"

namespace xpud::session {

Session::Session(uint64_t id, Peer peer, std::vector<uint32_t> devices,
                 std::shared_ptr<handles::HostMemories> host_memories)
    : id_(id),
      peer_(std::move(peer)),
      devices_(std::move(devices)),
      opened_ns_(NowNs()),
      host_memories_(std::move(host_memories)),
      loans_([this](uint32_t device) { Ring(device); }) {}

void Session::Ring(uint32_t device) const {
  std::shared_ptr<transport::ServerTransport> transport;
  {
    MutexLock lock(mutex_);
    transport = transports_[device].lock();
  }
  if (transport != nullptr) eventfd_write(transport->doorbell(), 1);
}

void Session::SetOpen(uint32_t device, const std::shared_ptr<transport::ServerTransport>& transport) {
  MutexLock lock(mutex_);
  open_devices_ |= uint64_t{1} << device;
  transports_[device] = transport;
}

absl::StatusOr<uint32_t> Session::SetNice(uint32_t nice, bool may_raise) {
  uint32_t now = nice_.load();
  do {
    if (absl::Status allowed = CheckNice(now, nice, may_raise); !allowed.ok()) return allowed;
  } while (!nice_.compare_exchange_weak(now, nice));
  return now;
}

void Session::SetQuota(uint32_t device, std::optional<uint64_t> bytes) {
  MutexLock lock(mutex_);
  quotas_[device] = bytes;
}

std::optional<uint64_t> Session::quota(uint32_t device) const {
  MutexLock lock(mutex_);
  return quotas_[device];
}

bool Session::IsOpen(uint32_t device) const {
  MutexLock lock(mutex_);
  return device < transport::kMaxDevices && (open_devices_ >> device & 1) != 0;
}

std::optional<uint64_t> Session::Completed(uint32_t device, uint32_t queue) const {
  std::shared_ptr<transport::ServerTransport> transport;
  {
    MutexLock lock(mutex_);
    if (device >= transport::kMaxDevices || (open_devices_ >> device & 1) == 0) return std::nullopt;
    transport = transports_[device].lock();
  }
  if (transport == nullptr) return 0;  // the session is being closed
  return std::atomic_ref<uint64_t>(*transport->CompletedWord(queue)).load(std::memory_order_acquire);
}

}  // namespace xpud::session
