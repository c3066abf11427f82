// Plans by problem, for kernels that are given a problem by value. Holds a number of plans at most: when it
// is full it forgets all of them, and those in use last as long as their users. Any thread.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "proto/base/mutex.h"

namespace xpud::kernels {

template <typename Key, typename Plan>
class PlanTable {
 public:
  explicit PlanTable(size_t most) : most_(most) {}

  // The key's plan, made by make() -> std::shared_ptr<Plan> if need be, which should be quick.
  template <typename Make>
  std::shared_ptr<Plan> Find(const Key& key, Make make) {
    MutexLock lock(mutex_);
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    if (plans_.size() == most_) plans_.clear();
    return plans_[key] = make();
  }

 private:
  const size_t most_;
  Mutex mutex_;
  absl::flat_hash_map<Key, std::shared_ptr<Plan>> plans_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::kernels
