#include "daemon/executor/process/hang_watch.h"

#include <algorithm>

#include "daemon/executor/process/process_queue.h"

namespace xpud::executor::process {

// The daemon cannot see which command holds up the others. All queues without progress for about as long are
// suspects, and so is the queue that blocks a ring.
std::vector<uint64_t> HangWatch::Check(std::chrono::milliseconds limit) {
  const Clock::time_point now = Clock::now();
  const auto about = limit * 4 / 5;
  bool over = false;
  std::vector<uint64_t> hung;
  const auto add = [&](const ProcessQueue& queue, Clock::duration age) {
    over |= age >= limit;
    if (age >= about && std::ranges::find(hung, queue.owner()) == hung.end()) hung.push_back(queue.owner());
  };
  heads_.resize(rings_.count());
  for (size_t r = 0; r < heads_.size(); ++r) {
    const uint64_t taken = rings_.taken(r);
    if (heads_[r].position != taken || taken == rings_.position(r)) heads_[r] = {taken, now};
  }
  queues_.ForEachOf(rings_, [&](ProcessQueue& queue) {
    const Head& head = heads_[queue.ring()];
    if (queue.HasUnreachedMark(head.position)) add(queue, now - queue.last_progress());
    if (now - head.since >= limit && queue.Holds(head.position)) add(queue, now - head.since);
  });
  return over ? hung : std::vector<uint64_t>();
}

}  // namespace xpud::executor::process
