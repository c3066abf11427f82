// Serves events and log lines to the control plane. Thread-safe: a thread of gRPC waits for each reader.
#pragma once

#include <atomic>

#include "absl/status/statusor.h"
#include "daemon/telemetry/event_log.h"
#include "daemon/telemetry/log_ring.h"
#include "proto/control/xpud.pb.h"

namespace xpud::service {

// Counts the readers that wait for new events or lines.
class EventReaders {
 public:
  static constexpr int kMaxWaiting = 16;
  // Limits of one reply. It fits a socket's buffer, so that no thread blocks on a client that does not read.
  static constexpr size_t kMaxEvents = 64, kMaxLines = 64;

  absl::Status List(const telemetry::EventLog& log, const v1::ListEventsRequest& request,
                    v1::ListEventsResponse& out);
  // Returns InvalidArgument for an unknown level.
  absl::Status List(const telemetry::LogLines& log, const v1::ListLogRequest& request,
                    v1::ListLogResponse& out);

 private:
  template <typename Item>
  absl::StatusOr<typename RecentList<Item>::Items> Read(const RecentList<Item>& list, uint64_t after,
                                                        size_t most, uint32_t wait_ms);

  std::atomic<int> waiting_{0};
};

}  // namespace xpud::service
