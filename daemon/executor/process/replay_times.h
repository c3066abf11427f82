// Assigns the times of operations to the launches of a replayed recording. The driver reports operations in
// any order, and only with the tag of the whole recording. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "daemon/executor/api/work_time.h"
#include "proto/base/ze_ext.h"

namespace xpud::executor::process {

// Element i: how many operations of the device the first i + 1 launches of a recording are.
using OperationCounts = std::vector<uint32_t>;

class ReplayTimes {
 public:
  // Replays whose operations are not all reported; the report of one may be lost. The oldest are forgotten.
  static constexpr size_t kMaxReplays = 4096;

  // A recording is about to be appended to a queue; `first` is the number of its first launch.
  void Begin(uint64_t tag, uint32_t queue, uint64_t first, std::shared_ptr<const OperationCounts> counts);
  struct Times {
    uint32_t queue = 0;
    std::vector<WorkTime> times;
  };
  // An operation was reported. If it was the last one of its replay, returns the times of all of them.
  Times Add(const xpud_trace_record_t& record);

 private:
  struct Replay {
    uint32_t queue;
    uint64_t first;
    std::shared_ptr<const OperationCounts> counts;
    std::vector<xpud_trace_record_t> operations;
  };

  std::map<uint64_t, Replay> replays_;  // by tag
};

}  // namespace xpud::executor::process
