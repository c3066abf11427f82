// The order of work of a queue or an immediate list, as its context sees it. Thread-safe.
#pragma once

#include <level_zero/ze_api.h>

#include <cstdint>

namespace xpud::drivers {

class Timeline {
 public:
  virtual ~Timeline() = default;
  // Waits until all enqueued work is done. Returns SUCCESS, NOT_READY, or an error of the device. With 0 it
  // only queries.
  virtual ze_result_t Wait(uint64_t timeout_ns) const = 0;
};

}  // namespace xpud::drivers
