// Plans by problem, for kernels that get a problem by value. When the table is full, it drops all plans;
// plans in use live as long as their users. Thread-safe.
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

  // Returns the key's plan, created by make() -> std::shared_ptr<Plan> if there is none. make() runs under
  // the lock and should be fast.
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
