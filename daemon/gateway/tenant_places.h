// So many places, of which no tenant has more than a part. Any thread; it outlives the places it gave.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/base/mutex.h"

namespace xpud::remote {

// Given back with its last copy.
using Place = std::shared_ptr<void>;

class TenantPlaces {
 public:
  TenantPlaces(int all, int of_tenant) : most_(all), most_of_tenant_(of_tenant) {}

  // ResourceExhausted: this tenant gets none now.
  absl::StatusOr<Place> Take(const std::string& tenant);

 private:
  void Leave(const std::string& tenant);

  const int most_, most_of_tenant_;
  Mutex mutex_;
  int taken_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int> of_tenant_ ABSL_GUARDED_BY(mutex_);  // those that have any
};

}  // namespace xpud::remote
