// Counters of a session's work, or of the work of all of a tenant's sessions. A counter is declared once in
// the list below, and as a field of the same name in the control plane's messages; sums and replies derive
// from the list. Plain values.
#pragma once

#include <cstdint>

#include "daemon/tenant/held_times.h"
#include "proto/base/histogram.h"

namespace xpud {

#define XPUD_SESSION_COUNTERS(COUNTER)             \
  COUNTER(commands_submitted)                      \
  COUNTER(commands_completed)                      \
  COUNTER(kernels)                                 \
  COUNTER(errors) /* commands that failed */       \
  COUNTER(uploaded_bytes)                          \
  COUNTER(downloaded_bytes)                        \
  COUNTER(busy_ns)       /* device time charged */ \
  COUNTER(compile_ns)    /* of its loop kernels */ \
  COUNTER(queue_wait_ns) /* commands waited for their turn: session/queue_wait.h */

struct SessionCounters {
#define XPUD_DECLARE(name) uint64_t name = 0;
  XPUD_SESSION_COUNTERS(XPUD_DECLARE)
#undef XPUD_DECLARE

  // How long commands waited for their turn, as queue_wait_ns counts it; how long it took from their arrival
  // until they were known to have completed; and how long they took on the device. Those that ran, or ended,
  // between two readings of the clock share the time.
  Histogram queue_wait, latency, duration;
  HeldTimes held;

  SessionCounters& operator+=(const SessionCounters& other) {
#define XPUD_ADD(name) name += other.name;
    XPUD_SESSION_COUNTERS(XPUD_ADD)
#undef XPUD_ADD
    queue_wait += other.queue_wait;
    latency += other.latency;
    duration += other.duration;
    held += other.held;
    return *this;
  }

  // Sets the fields of these names in a message of the control plane.
  template <typename Message>
  void CopyTo(Message& message) const {
#define XPUD_SET(name) message.set_##name(name);
    XPUD_SESSION_COUNTERS(XPUD_SET)
#undef XPUD_SET
  }
};

}  // namespace xpud
