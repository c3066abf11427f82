#include "daemon/memory/host_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/base/status_macros.h"

namespace xpud::memory {

HostStore::HostStore(executor::Device& device, uint64_t limit, std::function<void()> wake)
    : device_(device), limit_(limit / kSlotBytes * kSlotBytes), background_(std::move(wake), "xpud-clear") {}

std::optional<executor::HostParts> HostStore::Take(uint64_t bytes) {
  const uint64_t wanted = SlotBytesFor(bytes);
  if (free_bytes() < wanted) {
    Prepare(wanted);
    if (free_bytes() < wanted) return std::nullopt;
  }
  executor::HostParts parts;
  for (uint64_t left = bytes; left != 0; left -= parts.back().bytes) {
    executor::HostPart slot = free_.back();
    free_.pop_back();
    slot.bytes = std::min(left, kSlotBytes);
    parts.push_back(slot);
  }
  used_ += wanted;
  return parts;
}

void HostStore::Return(executor::HostParts parts) {
  if (parts.empty()) return;
  used_ -= parts.size() * kSlotBytes;
  auto clear = [parts] {
    for (const executor::HostPart& part : parts)
      std::memset(part.memory->address() + part.offset, 0, part.bytes);
  };
  background_.Run(std::move(clear), [this, parts = std::move(parts)]() mutable {
    for (executor::HostPart& part : parts) {
      part.bytes = kSlotBytes;
      free_.push_back(part);
    }
  });
}

void HostStore::Prepare(uint64_t bytes) {
  if (takes_step_ || free_bytes() >= bytes || taken_ >= limit_) return;
  trouble_ = StartStep();
}

void HostStore::Shrink() {
  if (takes_step_ || free_bytes() != taken_) return;
  free_.clear();
  steps_.clear();
  taken_ = 0;
}

// The end of one step begins the next: see Take.
absl::Status HostStore::StartStep() {
  const uint64_t bytes = std::min(kStepBytes, limit_ - taken_);
  auto step = std::make_shared<Step>();
  ASSIGN_OR_RETURN(step->fd, CreateSealedMemfd("xpud-moved-out", bytes));
  ASSIGN_OR_RETURN(step->mapping, Mapping::Map(step->fd, bytes, Access::kReadWrite));
  takes_step_ = true;
  taken_ += bytes;
  device_.StartImport({{step->mapping.data(), bytes}, step->fd.get()}, /*owner=*/0,
                      [this, step](auto imported) { AddStep(step, std::move(imported)); });
  return absl::OkStatus();
}

void HostStore::AddStep(std::shared_ptr<Step> step,
                        absl::StatusOr<std::unique_ptr<executor::HostMemory>> imported) {
  takes_step_ = false;
  trouble_ = imported.status();
  const uint64_t bytes = step->mapping.size();
  if (!imported.ok()) {
    taken_ -= bytes;
    return;
  }
  step->memory = *std::move(imported);
  for (uint64_t at = 0; at < bytes; at += kSlotBytes) free_.push_back({step->memory.get(), at, kSlotBytes});
  steps_.push_back(std::move(step));
}

}  // namespace xpud::memory
