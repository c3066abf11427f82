// What the agent tells about itself at /metrics, /healthz and /readyz. Thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "daemon/telemetry/connection.h"
#include "daemon/telemetry/exposition.h"
#include "deploy/agent/core/claim_keeper.h"
#include "deploy/agent/core/conditions.h"
#include "deploy/agent/core/counters.h"

namespace xpud::agent {

struct MetricsSnapshot {
  Counters::Snapshot counters;
  std::map<std::string, uint64_t> claims;         // by engine; empty if the daemon does not answer
  std::map<std::string, std::string> conditions;  // of each condition, why it is not met; empty: it is
};

// `engines`: those that the agent serves, which have a number of claims also when that is 0. Waits for the
// daemon.
MetricsSnapshot TakeSnapshot(const std::vector<std::string>& engines, ClaimKeeper& keeper,
                             const Counters& counters, const Conditions& conditions);
std::string MetricsText(const MetricsSnapshot& snapshot, telemetry::Format format);

// /healthz: the agent answers. /readyz: what it needs is there, or a line for each thing that is not.
telemetry::Connection::Pages HealthPages(const Conditions& conditions);

}  // namespace xpud::agent
