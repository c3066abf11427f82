// A bounded list of the latest items, which are numbered. Thread-safe. Adding never waits for readers: a slow
// reader misses items, and the gap in the numbers tells it how many.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "proto/base/mutex.h"

namespace xpud {

// `Item` has a `uint64_t sequence`, which the list sets: from 1, without gaps.
template <typename Item>
class RecentList {
 public:
  using Items = std::vector<std::shared_ptr<const Item>>;

  explicit RecentList(size_t most) : most_(most) {}

  void Add(Item item) {
    const auto kept = std::make_shared<Item>(std::move(item));
    MutexLock lock(mutex_);
    kept->sequence = ++last_;
    items_.push_back(kept);
    if (items_.size() > most_) items_.pop_front();
    added_.NotifyAll();
  }

  // Returns the first items with a greater number that are still kept, oldest first.
  Items After(uint64_t sequence, size_t most) const {
    MutexLock lock(mutex_);
    return Copy(sequence, most);
  }

  // Like After, but waits until there is an item. Returns none after `patience` or if the list has ended.
  Items AwaitAfter(uint64_t sequence, size_t most, std::chrono::nanoseconds patience) const {
    const auto until = std::chrono::steady_clock::now() + patience;
    MutexLock lock(mutex_);
    while (!ended_ && last_ <= sequence) {
      const auto rest = until - std::chrono::steady_clock::now();
      if (rest <= rest.zero()) return {};
      added_.WaitFor(mutex_, rest);
    }
    return ended_ ? Items() : Copy(sequence, most);
  }

  // Ends all waits, now and later.
  void End() {
    MutexLock lock(mutex_);
    ended_ = true;
    added_.NotifyAll();
  }
  bool ended() const {
    MutexLock lock(mutex_);
    return ended_;
  }

 private:
  Items Copy(uint64_t sequence, size_t most) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto first = std::ranges::upper_bound(items_, sequence, {}, &Item::sequence);
    const auto there = static_cast<size_t>(items_.end() - first);
    return {first, first + static_cast<std::ptrdiff_t>(std::min(most, there))};
  }

  const size_t most_;
  mutable Mutex mutex_;
  mutable CondVar added_;
  std::deque<std::shared_ptr<const Item>> items_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace xpud
