#include "deploy/agent/core/counters.h"

namespace xpud::agent {

void Counters::AddCall(const std::string& engine, const std::string& action, const absl::Status& status,
                       std::chrono::nanoseconds took) {
  const MutexLock lock(mutex_);
  snapshot_.calls[{engine, action}].Add(static_cast<uint64_t>(took.count()));
  if (!status.ok()) ++snapshot_.refusals[{engine, absl::StatusCodeToString(status.code())}];
}

void Counters::AddCorrection(const std::string& engine, const std::string& what) {
  const MutexLock lock(mutex_);
  ++snapshot_.corrections[{engine, what}];
}

void Counters::AddRequest(const std::string& engine, int code) {
  const MutexLock lock(mutex_);
  ++snapshot_.requests[{engine, code}];
}

Counters::Snapshot Counters::Read() const {
  const MutexLock lock(mutex_);
  return snapshot_;
}

}  // namespace xpud::agent
