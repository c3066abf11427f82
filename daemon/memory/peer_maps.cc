#include "daemon/memory/peer_maps.h"

#include <utility>

#include "proto/base/status_macros.h"

namespace xpud::memory {

PeerMaps::~PeerMaps() {
  SetWake(nullptr);
  for (auto& [memory, mapped] : maps_) mapped.memory->RemoveMapping();
}

void PeerMaps::SetWake(std::function<void()> wake) {
  const MutexLock lock(notice_->mutex);
  notice_->wake = std::move(wake);
}

absl::StatusOr<const std::byte*> PeerMaps::Map(const std::shared_ptr<ExportedMemory>& memory) {
  if (const auto found = maps_.find(memory.get()); found != maps_.end()) return found->second.here->address();
  const std::shared_ptr<const UniqueFd> fd = memory->fd();
  if (fd == nullptr) return absl::FailedPreconditionError("the memory of another device has ended");
  ASSIGN_OR_RETURN(auto here, device_.MapPeer(*fd, memory->bytes()));
  memory->AddMapping([notice = notice_] {
    notice->any_ended.store(true, std::memory_order_release);
    const MutexLock lock(notice->mutex);
    if (notice->wake) notice->wake();
  });
  Mapped& mapped = maps_[memory.get()];
  mapped = {memory, std::move(here)};
  return mapped.here->address();
}

void PeerMaps::Poll() {
  if (!notice_->any_ended.exchange(false, std::memory_order_acquire)) return;
  for (auto each = maps_.begin(); each != maps_.end();) {
    Mapped& mapped = each->second;
    if (!mapped.memory->ended()) {
      ++each;
      continue;
    }
    mapped.here = nullptr;
    mapped.memory->RemoveMapping();
    each = maps_.erase(each);
  }
}

}  // namespace xpud::memory
