#include "daemon/memory/host_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::memory {
namespace {

// The kernel clears pages as it makes them: 0.7 s a GiB on one core, which would be most of the import.
constexpr size_t kPageMakers = 4;

// Best effort: the import makes what is missing.
void MakePages(const Mapping& mapping) {
  const size_t part = mapping.size() / kPageMakers;
  const auto make = [&](size_t i) { madvise(mapping.data() + i * part, part, MADV_POPULATE_WRITE); };
  std::vector<std::thread> makers;
  for (size_t i = 1; i < kPageMakers; ++i) {
    if (auto maker = StartThread("xpud-pages", [&, i] { make(i); }); maker.ok())
      makers.push_back(*std::move(maker));
  }
  make(0);
  for (std::thread& maker : makers) maker.join();
}

}  // namespace

HostStore::HostStore(executor::Device& device, uint64_t limit, FileStore::Space files,
                     const std::function<void()>& wake)
    : device_(device),
      limit_(limit / kSlotBytes * kSlotBytes),
      background_(wake, "xpud-clear"),
      files_(limit_ == 0 ? FileStore::Space() : std::move(files), kSlotBytes, wake) {}

void HostStore::Poll() {
  background_.FinishDone();
  files_.Poll();
}

std::optional<executor::HostParts> HostStore::Take(uint64_t bytes, uint64_t keep) {
  const uint64_t wanted = SlotBytesFor(bytes);
  if (free_bytes() < wanted + keep) {
    Prepare(wanted + keep);
    if (free_bytes() < wanted + keep) return std::nullopt;
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
  ++clearing_;
  auto clear = [parts] {
    for (const executor::HostPart& part : parts)
      std::memset(part.memory->address() + part.offset, 0, part.bytes);
  };
  background_.Run(std::move(clear), [this, parts = std::move(parts)] {
    --clearing_;
    for (auto part = parts.rbegin(); part != parts.rend(); ++part)
      free_.push_back({part->memory, part->offset, kSlotBytes});
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

// One step at a time. Who needs more asks again: see Prepare.
absl::Status HostStore::StartStep() {
  const uint64_t bytes = std::min(kStepBytes, limit_ - taken_);
  auto step = std::make_shared<Step>();
  ASSIGN_OR_RETURN(step->fd, CreateSealedMemfd("xpud-moved-out", bytes));
  ASSIGN_OR_RETURN(step->mapping, Mapping::Map(step->fd, bytes, Access::kReadWrite));
  takes_step_ = true;
  taken_ += bytes;
  background_.Run([step] { MakePages(step->mapping); }, [this, step] { Import(step); });
  return absl::OkStatus();
}

void HostStore::Import(const std::shared_ptr<Step>& step) {
  device_.StartImport({{step->mapping.data(), step->mapping.size()}, step->fd.get()}, /*owner=*/0,
                      [this, step](auto imported) { AddStep(step, std::move(imported)); });
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
  // Take gives the last one first: neighbours, in their order, are copied together.
  for (uint64_t at = bytes; at != 0; at -= kSlotBytes)
    free_.push_back({step->memory.get(), at - kSlotBytes, kSlotBytes});
  steps_.push_back(std::move(step));
}

}  // namespace xpud::memory
