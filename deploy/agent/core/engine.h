// A cluster engine, as the core sees it.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "proto/control/xpud.pb.h"

namespace xpud::agent {

class Engine {
 public:
  virtual ~Engine() = default;
  // The value of kEngineLabel of its claims.
  virtual std::string_view name() const = 0;
  // The longest time between two reconciliations that succeed. A lost file is there again within a minute.
  virtual std::chrono::seconds period() const { return std::chrono::seconds(55); }
  // Compares what the engine says with `claims`, its claims that the daemon had shortly before, and with its
  // files, and sets right what differs. Called at the start, each period, and when the daemon has started
  // anew; never on two threads at once. Returns the first thing that could not be set right; the next call
  // tries again.
  virtual absl::Status Reconcile(const std::vector<v1::Claim>& claims) = 0;
};

}  // namespace xpud::agent
