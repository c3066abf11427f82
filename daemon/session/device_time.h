// How long one device worked, and for whom. A device that works on its own tells when commands of a queue
// have ended, not when they ran: work of several queues runs at once where there is room for it, else one
// after another, as it was sent. The engine thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace xpud::session {

class DeviceTime {
 public:
  // Commands of a session that were sent at `sent_ns` were at the head of their queue from `began_ns` on, and
  // have ended now. Returns what they are charged: that time without the part in which other sessions' work
  // that had been sent before went on, and ended.
  uint64_t Charge(uint64_t session, uint64_t sent_ns, uint64_t began_ns, uint64_t ended_ns);
  // The device did nothing else meanwhile.
  uint64_t ChargeAll(uint64_t began_ns, uint64_t ended_ns);

  // Time during which there was work.
  uint64_t busy_ns() const { return busy_ns_; }

 private:
  struct Work {
    uint64_t session, sent_ns, ended_ns;
  };
  struct Span {
    uint64_t began_ns, ended_ns;
  };
  static constexpr size_t kMostSpans = 16;
  std::array<Work, 32> recent_{};
  size_t next_ = 0;         // in recent_
  std::vector<Span> busy_;  // that were counted last; they do not touch
  uint64_t busy_ns_ = 0;
};

}  // namespace xpud::session
