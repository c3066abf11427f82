// The configuration of a running daemon: applies settings at the start, and live settings when SIGHUP has the
// file read again. REQUIRES: the listener's thread, unless a function says otherwise.
#pragma once

#include <functional>
#include <vector>

#include "daemon/config/configuration.h"
#include "daemon/lane/lanes.h"
#include "daemon/service/control.h"
#include "daemon/service/listener.h"
#include "daemon/telemetry/notifier.h"
#include "proto/base/mutex.h"

namespace xpud {

class Reloader {
 public:
  Reloader(config::CommandLine line, config::Configuration now)
      : line_(std::move(line)), now_(std::move(now)), found_(now_) {}

  // Applies the settings of devices at the start, before the lanes exist.
  void SetUp(stream::DeviceState& device) const;
  static service::Listener::Limits LimitsOf(const config::Options& options);
  static uint64_t StallAfterNs(const config::Options& options);

  // Reads the file again. A file that is not valid changes nothing.
  void Reload(lane::Lanes& lanes, service::Listener& listener, const telemetry::Notifier& notifier);

  // Returns the values that are in force. Thread-safe.
  std::vector<service::ConfigValue> Values() const;

 private:
  // Applies the live settings of `found`.
  void Adopt(const config::Configuration& found);

  const config::CommandLine line_;
  mutable Mutex mutex_;
  config::Configuration now_;                            // written under mutex_ by the listener's thread
  config::Configuration found_ ABSL_GUARDED_BY(mutex_);  // last content of the file
};

// Warns of keys that the command line overrides.
void LogOverridden(const config::Configuration& configuration);

}  // namespace xpud
