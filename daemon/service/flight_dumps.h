// Writes what a session did last to a file, when it ends by a fault or before its work was done. A thread of
// its own writes. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "daemon/records/archive.h"
#include "daemon/telemetry/event_log.h"
#include "proto/base/mutex.h"

namespace xpud::service {

class FlightDumps {
 public:
  static constexpr size_t kMaxFiles = 100;      // in the folder; the oldest are removed
  static constexpr size_t kMaxWaiting = 16;     // to be written; more are dropped
  static constexpr char kPrefix[] = "flight-";  // of the names of files, before their time

  // Creates the folder if there is none. Returns an error if files cannot be written there. `events` outlives
  // this.
  static absl::StatusOr<std::unique_ptr<FlightDumps>> Open(std::string folder, telemetry::EventLog& events);
  // Starts the thread that writes: once, before the first Add. The daemon is confined before, while it has
  // one thread. Returns ResourceExhausted if the system has no thread left.
  absl::Status Start();
  ~FlightDumps();  // writes what is waiting
  FlightDumps(const FlightDumps&) = delete;
  FlightDumps& operator=(const FlightDumps&) = delete;

  // Does not wait for the file. `session` has ended on the device.
  void Add(uint32_t device, const records::EndedSession& session);

 private:
  struct Dump {
    uint32_t device;
    records::EndedSession session;
  };

  FlightDumps(std::string folder, telemetry::EventLog& events)
      : folder_(std::move(folder)), events_(events) {}
  void Run();
  void Write(const Dump& dump);
  void RemoveOldest() const;

  const std::string folder_;
  telemetry::EventLog& events_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Dump> waiting_ ABSL_GUARDED_BY(mutex_);
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last member: ends first
};

}  // namespace xpud::service
