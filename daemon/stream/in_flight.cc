#include "daemon/stream/in_flight.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

namespace xpud::stream {
namespace {

constexpr size_t kMaxPolls = 64;  // retired blocks that an allocation looks at

}  // namespace

uint64_t InFlight::Done() const {
  return std::atomic_ref<uint64_t>(words_.done).load(std::memory_order_acquire);
}

size_t InFlight::SlotFor(uint64_t key) const {
  size_t unused = kErrorSlots;
  for (size_t i = 0; i < kErrorSlots; ++i) {
    const size_t at = (key + i) % kErrorSlots;
    if (slots_[at].key == key) return at;
    if (slots_[at].users == 0 && unused == kErrorSlots) unused = at;
  }
  return unused;
}

uint64_t* InFlight::TakeErrorSlot(uint64_t sequence, uint64_t key, absl::FunctionRef<Reporter()> describe) {
  const size_t at = SlotFor(key);
  if (at == kErrorSlots) return nullptr;
  Slot& slot = slots_[at];
  if (slot.key != key || slot.reporter.name.empty()) slot = {key, 0, describe()};
  ++slot.users;
  reporters_.push_back({sequence, at});
  return &on_device_->errors[at];
}

std::optional<memory::Block> InFlight::Reuse(uint64_t bytes, uint64_t announced) {
  const size_t looks = std::min(retired_.size(), kMaxPolls);
  for (size_t i = 0; i < looks; ++i) {
    const auto at = retired_.end() - 1 - static_cast<ptrdiff_t>(i);
    if (at->block.bytes != bytes || (at->sequence > announced && at->block.born <= announced)) continue;
    const memory::Block block = at->block;
    retired_.erase(at);
    return block;
  }
  return std::nullopt;
}

void InFlight::Advance(uint64_t done, OnError on_error, absl::FunctionRef<void(const memory::Block&)> free) {
  while (!reporters_.empty() && reporters_.front().sequence <= done) {
    const Command command = reporters_.front();
    Slot& slot = slots_[command.slot];
    const std::atomic_ref<uint64_t> reported(words_.errors[command.slot]);
    if (reported.load(std::memory_order_relaxed) != 0) [[unlikely]] {
      // A command that finds a report of another one in its slot makes none of its own, so all are suspects.
      std::vector<uint64_t> suspects;
      for (const Command& other : reporters_) {
        if (other.slot == command.slot) suspects.push_back(other.sequence);
      }
      on_error(suspects, reported.exchange(0, std::memory_order_relaxed), slot.reporter);
    }
    --slot.users;
    reporters_.pop_front();
  }
  while (!retired_.empty() && retired_.front().sequence <= done) {
    free(retired_.front().block);
    retired_.pop_front();
  }
}

}  // namespace xpud::stream
