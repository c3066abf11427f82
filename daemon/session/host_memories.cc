#include "daemon/session/host_memories.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace xpud::session {

HostMemories::Memory::Memory(transport::ClientMemory client, std::shared_ptr<Total> total)
    : client_(std::make_shared<const transport::ClientMemory>(std::move(client))), total_(std::move(total)) {
  total_->bytes += bytes();
  ++total_->count;
}

HostMemories::Memory::~Memory() {
  total_->bytes -= bytes();
  --total_->count;
}

std::byte* HostMemories::Memory::OnDevice(uint32_t device) const {
  const executor::HostMemory* const access = access_[device].get();
  return access == nullptr ? nullptr : access->OnDevice(client_->memory().bytes.data());
}

absl::Status HostMemories::CheckLimit(uint64_t bytes) const {
  if (total_->count >= transport::kMaxHostMemories) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a session can share ", transport::kMaxHostMemories, " host memories at most"));
  }
  if (bytes <= limit_ && total_->bytes <= limit_ - bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("a session can share ", limit_ >> 20, " MiB of host memory; ", total_->bytes >> 20,
                   " MiB are shared and ", bytes >> 20, " MiB were to be added (--host-memory-limit)"));
}

bool HostMemories::HaveExecutors(uint64_t devices) const {
  for (; devices != 0; devices &= devices - 1) {
    const auto device = static_cast<size_t>(std::countr_zero(devices));
    if (devices_[device].device->properties().replaceable) return true;
  }
  return false;
}

absl::Status HostMemories::Share(uint32_t id, uint64_t devices, transport::ClientMemory client,
                                 const Done& done) {
  if (id == 0 || memories_.contains(id))
    return absl::InvalidArgumentError("host memory was shared under an id that is in use");
  if (devices == 0 || static_cast<size_t>(std::bit_width(devices)) > devices_.size())
    return absl::InvalidArgumentError("host memory was shared with a device that does not exist");
  absl::Status accepted = CheckLimit(client.memory().bytes.size());
  if (accepted.ok()) accepted = client.Seal(HaveExecutors(devices));
  if (!accepted.ok()) {
    done(accepted);
    return absl::OkStatus();
  }
  const auto memory = std::make_shared<Memory>(std::move(client), total_);
  memories_[id] = memory;
  memory->awaited_ = std::popcount(devices);
  for (; devices != 0; devices &= devices - 1)
    GiveTo(static_cast<uint32_t>(std::countr_zero(devices)), id, memory, done);
  return absl::OkStatus();
}

// When the device has it, the session may have ended, and with it all that it had.
void HostMemories::GiveTo(uint32_t device, uint32_t id, const std::shared_ptr<Memory>& memory,
                          const Done& done) {
  using Access = std::unique_ptr<executor::HostMemory>;
  devices_[device].device->StartImport(memory->client_->memory(), session_,
                                       [this, device, id, done, kept = memory->client_,
                                        weak = std::weak_ptr<Memory>(memory)](absl::StatusOr<Access> access) {
                                         const std::shared_ptr<Memory> taken = weak.lock();
                                         if (taken == nullptr) return;
                                         if (access.ok()) {
                                           taken->access_[device] = *std::move(access);
                                         } else {
                                           taken->failure_ = access.status();
                                         }
                                         if (--taken->awaited_ != 0) return;
                                         if (!taken->failure_.ok()) memories_.erase(id);
                                         done(taken->failure_);
                                       });
}

HostMemories::Memory* HostMemories::Find(uint32_t id) const {
  const auto found = memories_.find(id);
  return found == memories_.end() || found->second->awaited_ != 0 ? nullptr : found->second.get();
}

std::shared_ptr<HostMemories::Memory> HostMemories::Release(uint32_t id) {
  if (Find(id) == nullptr) return nullptr;
  return std::move(memories_.extract(id).mapped());
}

}  // namespace xpud::session
