// When a part of a queue's work ran on its device.
#pragma once

#include <cstdint>

namespace xpud::executor {

struct WorkTime {
  uint64_t number;              // of the work, as DeviceQueue::appended counts it, from 0
  uint64_t began_ns, ended_ns;  // as NowNs counts; one piece of work may have several times
};

}  // namespace xpud::executor
