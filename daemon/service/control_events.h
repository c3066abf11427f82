// Events as the control plane answers with them. Any thread: it is one of gRPC's that waits with a reader.
#pragma once

#include <atomic>

#include "absl/status/status.h"
#include "daemon/scheduler/event_log.h"
#include "proto/control/xpud.pb.h"

namespace xpud::service {

class EventReaders {
 public:
  static constexpr int kMostWaiting = 16;
  // In an answer: it fits what a socket takes without its reader, so that no thread waits for one that does
  // not read.
  static constexpr size_t kMostEvents = 64;

  absl::Status List(const scheduler::EventLog& log, const v1::ListEventsRequest& request,
                    v1::ListEventsResponse& out);

 private:
  std::atomic<int> waiting_{0};
};

}  // namespace xpud::service
