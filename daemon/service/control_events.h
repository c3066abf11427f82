// Events and the log's lines as the control plane answers with them. Any thread: it is one of gRPC's that
// waits with a reader.
#pragma once

#include <atomic>

#include "absl/status/statusor.h"
#include "daemon/scheduler/event_log.h"
#include "daemon/telemetry/log_ring.h"
#include "proto/control/xpud.pb.h"

namespace xpud::service {

// Those of both who wait for something that is not there yet.
class EventReaders {
 public:
  static constexpr int kMaxWaiting = 16;
  // In an answer: it fits what a socket takes without its reader, so that no thread waits for one that does
  // not read.
  static constexpr size_t kMaxEvents = 64, kMaxLines = 64;

  absl::Status List(const scheduler::EventLog& log, const v1::ListEventsRequest& request,
                    v1::ListEventsResponse& out);
  // InvalidArgument: there is no such level.
  absl::Status List(const telemetry::LogLines& log, const v1::ListLogRequest& request,
                    v1::ListLogResponse& out);

 private:
  template <typename Item>
  absl::StatusOr<typename RecentList<Item>::Items> Read(const RecentList<Item>& list, uint64_t after,
                                                        size_t most, uint32_t wait_ms);

  std::atomic<int> waiting_{0};
};

}  // namespace xpud::service
