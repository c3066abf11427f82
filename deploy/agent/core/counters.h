// What the agent did, for its metrics. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "proto/base/histogram.h"
#include "proto/base/mutex.h"

namespace xpud::agent {

class Counters {
 public:
  // A call of an engine has ended with `status`: engine "kubernetes", action "prepare".
  void AddCall(const std::string& engine, const std::string& action, const absl::Status& status,
               std::chrono::nanoseconds took);
  // Something was not as an engine wants it, and was set right: what is "claim_made", "claim_deleted",
  // "claim_changed", "file_written" or "file_deleted".
  void AddCorrection(const std::string& engine, const std::string& what);
  // A request to an engine's server has ended, with this status of HTTP; 0: it had no answer.
  void AddRequest(const std::string& engine, int code);

  struct Snapshot {
    std::map<std::pair<std::string, std::string>, Histogram> calls;       // by engine and action
    std::map<std::pair<std::string, std::string>, uint64_t> refusals;     // by engine and status code
    std::map<std::pair<std::string, std::string>, uint64_t> corrections;  // by engine and what
    std::map<std::pair<std::string, int>, uint64_t> requests;             // by engine and code
  };
  Snapshot Read() const;

 private:
  mutable Mutex mutex_;
  Snapshot snapshot_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::agent
