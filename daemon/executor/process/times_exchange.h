// When the work of an executor's queues was appended and ran, in shared memory: the executor's TimeKeeper
// adds it while the daemon wants it, the daemon takes it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "daemon/executor/api/work_time.h"

namespace xpud::executor::process {

class TimesExchange {
 public:
  static constexpr uint64_t kCapacity = 1 << 16;

  struct Entry {
    uint32_t queue;
    uint32_t reserved;
    WorkTime time;
  };

  // For the daemon, one thread. Says whether times are wanted. Returns a ticket: once Reached(ticket), the
  // executor has begun to note times, or has added those of all work that had ended before.
  uint32_t Want(bool on);
  // A later ticket includes the earlier ones.
  bool Reached(uint32_t ticket) const {
    const uint32_t reached = reached_.load(std::memory_order_acquire);
    return static_cast<int32_t>((reached >> 1) - (ticket >> 1)) >= 0;
  }
  // Whether times are being added; the executor may not be able to.
  bool active() const { return active_.load(std::memory_order_relaxed); }
  // Calls `visit` with each entry, whose contents are not to be trusted, and removes it.
  template <typename Visit>
  void Take(Visit visit) {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    const uint64_t count = std::min(tail_.load(std::memory_order_acquire) - head, kCapacity);
    for (uint64_t i = 0; i < count; ++i) visit(Entry(entries_[(head + i) % kCapacity]));
    if (count != 0) head_.store(head + count, std::memory_order_release);
  }

  // For the executor.
  static bool IsOn(uint32_t ticket) { return (ticket & 1) != 0; }
  // Returns the last ticket, after at most `milliseconds` if it is still `known`.
  uint32_t Await(uint32_t known, int milliseconds);
  void Reach(uint32_t ticket, bool active) {
    active_.store(active, std::memory_order_relaxed);
    reached_.store(ticket, std::memory_order_release);
  }
  // One thread at a time. Drops the entry if there is no room.
  void Add(const Entry& entry);

 private:
  alignas(64) std::atomic<uint32_t> wanted_;  // the last ticket: odd if times are wanted
  std::atomic<uint32_t> reached_;
  std::atomic<bool> active_;
  alignas(64) std::atomic<uint64_t> tail_;  // entries before it are complete
  alignas(64) std::atomic<uint64_t> head_;  // entries before it are taken
  std::array<Entry, kCapacity> entries_;
};

}  // namespace xpud::executor::process
