#include "daemon/session/in_flight.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace xpud::session {
namespace {

constexpr size_t kMostLooks = 64;  // retired blocks that an allocation looks at

}  // namespace

uint64_t InFlight::Done() const {
  return std::atomic_ref<uint64_t>(words_.done).load(std::memory_order_acquire);
}

uint64_t* InFlight::TakeErrorSlot(uint64_t sequence, absl::FunctionRef<std::string()> describe) {
  if (reporters_.size() == kErrorSlots) return nullptr;
  const size_t slot = next_slot_;
  next_slot_ = (next_slot_ + 1) % kErrorSlots;
  std::atomic_ref<uint64_t>(words_.errors[slot]).store(0, std::memory_order_relaxed);
  reporters_.push_back({sequence, slot, describe()});
  return &on_device_->errors[slot];
}

std::optional<memory::Block> InFlight::Reuse(uint64_t bytes, uint64_t announced) {
  const size_t looks = std::min(retired_.size(), kMostLooks);
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
    const Reporter reporter = std::move(reporters_.front());
    reporters_.pop_front();
    const uint64_t word =
        std::atomic_ref<uint64_t>(words_.errors[reporter.slot]).load(std::memory_order_relaxed);
    if (word != 0) on_error(reporter.sequence, word, reporter.command);
  }
  while (!retired_.empty() && retired_.front().sequence <= done) {
    free(retired_.front().block);
    retired_.pop_front();
  }
}

}  // namespace xpud::session
