#include "kernels/library/onednn/packed_weights.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace xpud::kernels::onednn {
namespace {

// In lookups. Weights unused for kIdle are dropped. To make room for new ones, weights are dropped only if
// unused for kWarm, so that a model larger than the limit keeps a part of its weights packed instead of
// packing them in turn.
constexpr uint64_t kIdle = 1 << 18;
constexpr uint64_t kWarm = 1 << 14;
constexpr uint64_t kSweepEvery = 1 << 13;
constexpr size_t kPage = 4096, kHugePage = 2 << 20;

}  // namespace

size_t DefaultPackedBytes() {
  const size_t machine =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  return std::min(size_t{1} << 30, machine / 8);
}

PackedWeights::~PackedWeights() = default;

void PackedWeights::Free::operator()(std::byte* p) const { std::free(p); }

void PackedWeights::Allocate(size_t bytes, uint32_t pack_groups) {
  bytes_ = bytes;
  pack_groups_ = pack_groups;
  const bool is_large = bytes >= kHugePage;
  void* memory = nullptr;
  if (posix_memalign(&memory, is_large ? kHugePage : kPage, bytes) != 0) return;
  // A third of the time of packing would be faults of small pages.
  if (is_large) madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  memory_.reset(static_cast<std::byte*>(memory));
}

PackedWeights::Groups PackedWeights::NextGroups(uint32_t parts) const {
  return {next_group_, std::min(pack_groups_ - next_group_, (pack_groups_ + parts - 1) / parts)};
}

PackedWeightCache::Found PackedWeightCache::Find(std::string_view key, uint64_t content, uint32_t parts,
                                                 absl::FunctionRef<std::unique_ptr<PackedWeights>()> make) {
  if (++lookups_ % kSweepEvery == 0) Sweep();
  Entry& entry = entries_[absl::string_view(key.data(), key.size())];
  const bool seen = entry.content == content;
  entry.last_use = lookups_;
  if (!seen) {
    Retire(entry);
    entry.content = content;
    entry.not_before = 0;
    return {};
  }
  if (entry.weights == nullptr) {
    if (entry.not_before > lookups_) return {};
    std::unique_ptr<PackedWeights> weights = make();
    if (!MakeRoom(weights->bytes())) {
      entry.not_before = lookups_ + kWarm;
      return {};
    }
    bytes_ += weights->bytes();
    entry.weights = std::move(weights);
  }
  PackedWeights* const weights = entry.weights.get();
  const PackedWeights::Groups groups = weights->NextGroups(parts);
  if (groups.count == 0) return {.weights = weights};
  return {.weights = weights->AreLast(groups) ? weights : nullptr, .packing = weights, .groups = groups};
}

bool PackedWeightCache::MakeRoom(size_t bytes) {
  FreeIdle();
  while (bytes_ + bytes > limit_bytes_) {
    Entry* oldest = nullptr;
    for (auto& [key, entry] : entries_)
      if (entry.weights != nullptr && (oldest == nullptr || entry.last_use < oldest->last_use))
        oldest = &entry;
    if (oldest == nullptr || oldest->last_use + kWarm > lookups_) return false;
    Retire(*oldest);
    const size_t before = bytes_;
    FreeIdle();
    if (bytes_ == before) return false;  // still in use: try again later
  }
  return true;
}

void PackedWeightCache::Retire(Entry& entry) {
  if (entry.weights != nullptr) retired_.push_back(std::move(entry.weights));
}

void PackedWeightCache::FreeIdle() {
  std::erase_if(retired_, [&](const std::unique_ptr<PackedWeights>& weights) {
    if (!weights->Idle()) return false;
    bytes_ -= weights->bytes();
    return true;
  });
}

void PackedWeightCache::Sweep() {
  for (auto it = entries_.begin(); it != entries_.end();) {
    const uint64_t age = lookups_ - it->second.last_use;
    if (age > kIdle || (age > kSweepEvery && it->second.weights == nullptr)) {
      Retire(it->second);
      entries_.erase(it++);
    } else {
      ++it;
    }
  }
  FreeIdle();
}

}  // namespace xpud::kernels::onednn
