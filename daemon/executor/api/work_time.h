// What a device says of a part of a queue's work while it is traced.
#pragma once

#include <cstdint>

namespace xpud::executor {

struct WorkTime {
  enum class What : uint32_t {
    kRan,       // it ran on the device; one piece of work may have several times
    kAppended,  // an executor process appended it to the device's queue
    kReplayed,  // the same, as part of a recording
  };
  uint64_t number;              // of the work, as DeviceQueue::appended counts it, from 0
  uint64_t began_ns, ended_ns;  // as NowNs counts
  What what = What::kRan;
  uint32_t count = 1;  // how many pieces of work; more than one only of a recording
};

}  // namespace xpud::executor
