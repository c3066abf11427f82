// What the pages that a client and the daemon share look like. Two memfds a session, besides staging:
//   ring        ControlPage (client writes, daemon reads), then kRingBytes of commands, mapped twice in a
//   row; completion  CompletionPage (daemon and device write; read-only to the client).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "proto/wire/commands.h"

namespace xpud::transport {

inline constexpr size_t kMaxDevices = 16;
inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kRingBytes = size_t{1} << 20;
inline constexpr size_t kStagingBytes = size_t{4}
                                        << 20;  // small, so that it stays in the cache between the two copies

// The end of a queue's command.
struct Milestone {
  uint32_t queue = 0;
  uint64_t sequence = 0;
};

inline constexpr uint64_t kAnyProgress = 1;
// In ControlPage::client_waits. The lowest byte is neither 0 nor kAnyProgress, and 56 bits are enough for
// sequences.
constexpr uint64_t WaitsFor(const Milestone& milestone) {
  return milestone.sequence << 8 | (milestone.queue + 2);
}
// Nothing where `waits` is any other word, whatever wrote it.
constexpr std::optional<Milestone> AwaitedMilestone(uint64_t waits) {
  const uint64_t low = waits & 0xff;
  if (low < 2 || low - 2 >= wire::kMaxQueues) return std::nullopt;
  return Milestone{static_cast<uint32_t>(low - 2), waits >> 8};
}
// What both wait for who wait for `a` and for `b`.
constexpr uint64_t EitherOf(uint64_t a, uint64_t b) {
  if (a == 0 || a == b) return b;
  return b == 0 ? a : kAnyProgress;
}

// Positions count bytes since the session began; a position's place in the ring is position % kRingBytes.
struct ControlPage {
  alignas(64) std::atomic<uint64_t> tail;  // commands before it are whole
  alignas(64)
      std::atomic<uint32_t> attention;  // changes when the client begins to wait: the daemon should look now
  // What for, written before `attention` changes: as in client_waits, 0 once the daemon has taken it.
  std::atomic<uint64_t> asks;
  // Set by a client before it sleeps on CompletionPage::wake: nothing (0), kAnyProgress, or the progress that
  // it sleeps until (WaitsFor).
  alignas(64) std::atomic<uint64_t> client_waits;
  // Bytes of credit that the client means to use, on each device; it looks at the credit after that.
  alignas(64) std::atomic<uint64_t> claimed[kMaxDevices];
};
static_assert(sizeof(ControlPage) <= kPageBytes);

struct QueueStatus {
  alignas(64) std::atomic<uint64_t> completed;  // sequence of the last finished command
  std::atomic<uint32_t> errors;                 // raised so far; grows by one when the fields below are set
  uint32_t error_code;                          // absl::StatusCode
  uint64_t error_sequence;                      // the command that failed
  char message[488];                            // NUL-terminated; stable until ClearError names this count
};
static_assert(sizeof(QueueStatus) == 512);

// A session's memory on one device.
struct MemoryStatus {
  alignas(64) std::atomic<uint64_t> credit;  // what the session may hold without asking, as RoundSize counts
  std::atomic<uint64_t> allocated;           // what it holds, as the daemon accounts it
  std::atomic<uint64_t> answered;            // the last ReserveCommand that was answered: its sequence
  std::atomic<uint32_t> refused;             // whether the answer was no, and why: a MemoryShortage
  std::atomic<uint32_t> scope;
  std::atomic<uint64_t> limit, used;
};
static_assert(sizeof(MemoryStatus) == 64);

struct CompletionPage {
  alignas(64) std::atomic<uint64_t> head;           // ring bytes before it are free again
  alignas(64) std::atomic<uint32_t> daemon_sleeps;  // a client that publishes must ring the doorbell
  alignas(64) std::atomic<uint32_t> wake;           // futex: changes when a waiting client should look again
  std::atomic<uint32_t> closed;                     // the daemon has closed this session; `reason` is set
  char reason[256];
  MemoryStatus memory[kMaxDevices];
  QueueStatus queues[wire::kMaxQueues];
  std::atomic<uint64_t> timestamps[wire::kMaxTimestamps];  // ns on the device's clock
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace xpud::transport
