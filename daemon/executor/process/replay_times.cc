#include "daemon/executor/process/replay_times.h"

#include <algorithm>
#include <utility>

namespace xpud::executor::process {

void ReplayTimes::Begin(uint64_t tag, uint32_t queue, uint64_t first,
                        std::shared_ptr<const OperationCounts> counts) {
  if (replays_.size() == kMaxReplays) replays_.erase(replays_.begin());
  replays_[tag] = {queue, first, std::move(counts), {}};
}

// The operations of a recording run one after the other, so their order says whose each one is.
ReplayTimes::Times ReplayTimes::Add(const xpud_trace_record_t& record) {
  const auto found = replays_.find(record.tag);
  if (found == replays_.end()) return {};
  Replay& replay = found->second;
  replay.operations.push_back(record);
  if (replay.operations.size() < replay.counts->back()) return {};
  std::ranges::sort(replay.operations, {}, &xpud_trace_record_t::began_ns);
  Times times{replay.queue, {}};
  size_t launch = 0;
  for (size_t i = 0; i < replay.operations.size(); ++i) {
    while ((*replay.counts)[launch] <= i) ++launch;
    times.times.push_back(
        {replay.first + launch, replay.operations[i].began_ns, replay.operations[i].ended_ns});
  }
  replays_.erase(found);
  return times;
}

}  // namespace xpud::executor::process
