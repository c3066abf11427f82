// Waits for descriptors with epoll. Each event says what it is about. Not thread-safe.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "proto/base/unique_fd.h"

namespace xpud::service {

class Poller {
 public:
  enum class Source : uint64_t { kSignals, kInbox, kDoor, kSocket, kProcess };
  struct Event {
    Source source;
    uint64_t number;  // the door's or the connection's
    bool hung_up;
  };

  // `events` of epoll; a hang-up of both directions is always among them. Closing the descriptor ends it.
  absl::Status Watch(int fd, Source source, uint64_t number = 0, uint32_t events = EPOLLIN) {
    return Control(EPOLL_CTL_ADD, fd, source, number, events);
  }
  // Waits for other events than before.
  absl::Status Change(int fd, Source source, uint64_t number, uint32_t events) {
    return Control(EPOLL_CTL_MOD, fd, source, number, events);
  }
  // Returns the events, valid until the next call; none after `timeout_ms` (-1: never).
  std::span<const Event> Wait(int timeout_ms) {
    std::array<epoll_event, kMaxEvents> events;
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), timeout_ms);
    for (int i = 0; i < count; ++i) {
      const uint64_t tag = events[i].data.u64;
      events_[i] = {static_cast<Source>(tag % kSources), tag / kSources,
                    (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0};
    }
    return std::span(events_).first(count > 0 ? static_cast<size_t>(count) : 0);
  }

 private:
  static constexpr size_t kMaxEvents = 32;
  static constexpr uint64_t kSources = 8;  // at least as many as there are

  absl::Status Control(int operation, int fd, Source source, uint64_t number, uint32_t events) {
    epoll_event event = {};
    event.events = events;
    event.data.u64 = number * kSources + static_cast<uint64_t>(source);
    return epoll_ctl(epoll_.get(), operation, fd, &event) == 0
               ? absl::OkStatus()
               : absl::ErrnoToStatus(errno, "epoll_ctl failed");
  }

  const UniqueFd epoll_{epoll_create1(EPOLL_CLOEXEC)};
  std::array<Event, kMaxEvents> events_;
};

}  // namespace xpud::service
