// What the agent needs and lacks: /readyz answers with it, and the log has each change. Thread-safe.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "proto/base/mutex.h"

namespace xpud::agent {

class Conditions {
 public:
  // `name`: what is needed, in a word ("daemon", "api-server", "cdi-folder"). The last status of each counts.
  void Set(const std::string& name, const absl::Status& status);
  // The reason of each that is not OK, by name; empty: the agent is ready.
  std::map<std::string, std::string> Failing() const;
  // The reason of each, by name; empty: it is OK.
  std::map<std::string, std::string> All() const;

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::string> reasons_ ABSL_GUARDED_BY(mutex_);  // empty: OK
};

}  // namespace xpud::agent
