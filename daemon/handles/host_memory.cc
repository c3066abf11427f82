#include "daemon/handles/host_memory.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace xpud::handles {

HostMemories::Memory::Memory(uint32_t id, transport::ClientMemory client, std::shared_ptr<HostMemories> owner)
    : id_(id), client_(std::move(client)), owner_(std::move(owner)) {}

HostMemories::Memory::~Memory() {
  MutexLock lock(owner_->mutex_);
  owner_->bytes_ -= bytes().bytes.size();
  --owner_->count_;
  // The id may name another memory by now.
  const auto found = owner_->memories_.find(id_);
  if (found != owner_->memories_.end() && found->second.expired()) owner_->memories_.erase(found);
}

uint64_t HostMemories::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

absl::Status HostMemories::CheckLimit(uint64_t bytes) const {
  if (count_ >= transport::kMaxHostMemories) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a session can share ", transport::kMaxHostMemories, " host memories at most"));
  }
  if (bytes <= limit_ && bytes_ <= limit_ - bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("a session can share ", limit_ >> 20, " MiB of host memory; ", bytes_ >> 20,
                   " MiB are shared and ", bytes >> 20, " MiB were to be added (--host-memory-limit)"));
}

absl::StatusOr<std::shared_ptr<const HostMemories::Memory>> HostMemories::Add(
    const std::shared_ptr<HostMemories>& self, uint32_t id, UniqueFd fd, uint64_t bytes) {
  MutexLock lock(self->mutex_);
  if (const auto known = self->memories_.find(id); known != self->memories_.end()) {
    if (std::shared_ptr<const Memory> memory = known->second.lock()) return memory;
  }
  ASSIGN_OR_RETURN(transport::ClientMemory client, transport::ClientMemory::Accept(std::move(fd), bytes));
  RETURN_IF_ERROR(self->CheckLimit(bytes));
  RETURN_IF_ERROR(client.Seal(self->for_executors_));
  self->bytes_ += bytes;
  ++self->count_;
  auto memory = std::make_shared<const Memory>(id, std::move(client), self);
  self->memories_[id] = memory;
  return memory;
}

absl::Status DeviceHostMemories::Share(uint32_t id, const std::shared_ptr<const HostMemories::Memory>& memory,
                                       const Done& done) {
  const auto [at, added] = accesses_.try_emplace(id, nullptr);
  if (id == 0 || !added)
    return absl::InvalidArgumentError("host memory was shared under an id that is in use");
  const auto access = at->second = std::make_shared<Access>();
  access->memory_ = memory;
  // When the device has it, the session may have ended, and this object with it.
  device_.StartImport(memory->bytes(), session_,
                      [this, id, done, memory, weak = std::weak_ptr<Access>(access)](
                          absl::StatusOr<std::unique_ptr<executor::HostMemory>> imported) {
                        const std::shared_ptr<Access> taken = weak.lock();
                        if (taken == nullptr) return;
                        const absl::Status status = imported.status();
                        if (status.ok())
                          taken->device_ = *std::move(imported);
                        else
                          accesses_.erase(id);
                        done(status);
                      });
  return absl::OkStatus();
}

DeviceHostMemories::Access* DeviceHostMemories::Find(uint32_t id) const {
  const auto found = accesses_.find(id);
  return found == accesses_.end() || found->second->device_ == nullptr ? nullptr : found->second.get();
}

std::shared_ptr<DeviceHostMemories::Access> DeviceHostMemories::Release(uint32_t id) {
  if (Find(id) == nullptr) return nullptr;
  return std::move(accesses_.extract(id).mapped());
}

}  // namespace xpud::handles
