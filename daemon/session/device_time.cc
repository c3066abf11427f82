#include "daemon/session/device_time.h"

#include <algorithm>

namespace xpud::session {

uint64_t DeviceTime::ChargeAll(uint64_t began_ns, uint64_t ended_ns) {
  Span all = {began_ns, ended_ns};
  uint64_t counted = 0;
  std::erase_if(busy_, [&](const Span& span) {
    if (span.ended_ns < all.began_ns || span.began_ns > all.ended_ns) return false;
    counted += span.ended_ns - span.began_ns;
    all = {std::min(all.began_ns, span.began_ns), std::max(all.ended_ns, span.ended_ns)};
    return true;
  });
  busy_ns_ += all.ended_ns - all.began_ns - counted;
  if (busy_.size() == kMostSpans) busy_.erase(busy_.begin());
  busy_.push_back(all);
  return ended_ns - began_ns;
}

uint64_t DeviceTime::Charge(uint64_t session, uint64_t sent_ns, uint64_t began_ns, uint64_t ended_ns) {
  uint64_t from = began_ns;
  for (const Work& work : recent_) {
    if (work.session != session && work.sent_ns <= sent_ns) from = std::max(from, work.ended_ns);
  }
  recent_[next_++ % recent_.size()] = {session, sent_ns, ended_ns};
  ChargeAll(began_ns, ended_ns);
  return ended_ns - std::min(from, ended_ns);
}

}  // namespace xpud::session
