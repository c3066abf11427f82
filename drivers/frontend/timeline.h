// What a queue or an immediate list orders its work on, as far as its context needs to know. Any thread.
#pragma once

#include <level_zero/ze_api.h>

#include <cstdint>

namespace xpud::drivers {

class Timeline {
 public:
  virtual ~Timeline() = default;
  // Until all that was enqueued is done: SUCCESS, NOT_READY, or what became of the device. With 0 it only
  // asks.
  virtual ze_result_t Wait(uint64_t timeout_ns) const = 0;
};

}  // namespace xpud::drivers
