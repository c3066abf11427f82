// The configuration of a running daemon: puts what can change while it runs into force, at the start and when
// SIGHUP has the file read again. The listener's thread, except where said.
#pragma once

#include <functional>
#include <vector>

#include "daemon/config/configuration.h"
#include "daemon/scheduler/engine.h"
#include "daemon/service/control.h"
#include "daemon/service/listener.h"
#include "daemon/telemetry/notifier.h"
#include "proto/base/mutex.h"

namespace xpud {

class Reloader {
 public:
  Reloader(config::CommandLine line, config::Configuration now)
      : line_(std::move(line)), now_(std::move(now)), found_(now_) {}

  // What devices are told at the start; before there is an engine.
  void SetUp(session::DeviceState& device) const;
  static service::Listener::Limits LimitsOf(const config::Options& options);

  // Reads the file again. One that is not valid changes nothing.
  void Reload(scheduler::Engine& engine, service::Listener& listener, const telemetry::Notifier& notifier);

  // Any thread: what is in force.
  std::vector<service::ConfigValue> Values() const;

 private:
  // What was found instead is what the running daemon goes by, in so far as that can change.
  void Adopt(const config::Configuration& found);

  const config::CommandLine line_;
  mutable Mutex mutex_;
  config::Configuration now_;                            // written under mutex_ by the listener's thread
  config::Configuration found_ ABSL_GUARDED_BY(mutex_);  // what the file said last
};

// Warns of keys that the command line overrides.
void LogOverridden(const config::Configuration& configuration);

}  // namespace xpud
