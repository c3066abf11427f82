#include "daemon/scheduler/event_log.h"

#include <algorithm>
#include <utility>

#include "proto/base/clock.h"
#include "proto/base/text.h"

namespace xpud::scheduler {
namespace {

int64_t UnixMilliseconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

}  // namespace

void EventLog::Add(Event event) {
  event.text = PrintableText(event.text, kMostText);
  if (event.session) event.session->name = PrintableText(event.session->name, kMostText);
  event.time_ns = NowNs();
  event.unix_ms = UnixMilliseconds();
  const auto kept = std::make_shared<Event>(std::move(event));
  MutexLock lock(mutex_);
  kept->sequence = ++last_;
  events_.push_back(kept);
  if (events_.size() > kMost) events_.pop_front();
  added_.NotifyAll();
}

EventLog::Events EventLog::Copy(uint64_t sequence, size_t most) const {
  const auto first = std::ranges::upper_bound(events_, sequence, {}, &Event::sequence);
  const auto there = static_cast<size_t>(events_.end() - first);
  return {first, first + static_cast<std::ptrdiff_t>(std::min(most, there))};
}

EventLog::Events EventLog::After(uint64_t sequence, size_t most) const {
  MutexLock lock(mutex_);
  return Copy(sequence, most);
}

EventLog::Events EventLog::AwaitAfter(uint64_t sequence, size_t most,
                                      std::chrono::nanoseconds patience) const {
  const auto until = std::chrono::steady_clock::now() + patience;
  MutexLock lock(mutex_);
  while (!ended_ && last_ <= sequence) {
    const auto rest = until - std::chrono::steady_clock::now();
    if (rest <= rest.zero()) return {};
    added_.WaitFor(mutex_, rest);
  }
  return ended_ ? Events() : Copy(sequence, most);
}

void EventLog::End() {
  MutexLock lock(mutex_);
  ended_ = true;
  added_.NotifyAll();
}

bool EventLog::ended() const {
  MutexLock lock(mutex_);
  return ended_;
}

}  // namespace xpud::scheduler
