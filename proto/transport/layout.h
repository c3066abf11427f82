// The layout of the pages that a client and the daemon share: two memfds for each device that a session uses,
// besides staging.
//
// clang-format off
//   ring        ControlPage (written by the client, read by the daemon), then kRingBytes of commands, mapped
//               twice in a row
//   completion  CompletionPage (written by the daemon and the device; read-only to the client)
// clang-format on
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "proto/wire/commands.h"

namespace xpud::transport {

inline constexpr size_t kMaxDevices = 16;
inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kRingBytes = size_t{1} << 20;
// For each device. Small, so that the data stays in the cache between the two copies.
inline constexpr size_t kStagingBytes = size_t{4} << 20;

// The completion of command `sequence` on a queue.
struct Milestone {
  uint32_t queue = 0;
  uint64_t sequence = 0;
};

inline constexpr uint64_t kAnyProgress = 1;
// Encodes a milestone for ControlPage::client_waits. The lowest byte is neither 0 nor kAnyProgress; 56 bits
// are enough for sequences.
constexpr uint64_t WaitsFor(const Milestone& milestone) {
  return milestone.sequence << 8 | (milestone.queue + 2);
}
// Decodes WaitsFor. Returns nullopt for any other word; the client may have written anything.
constexpr std::optional<Milestone> AwaitedMilestone(uint64_t waits) {
  const uint64_t low = waits & 0xff;
  if (low < 2 || low - 2 >= wire::kMaxQueues) return std::nullopt;
  return Milestone{static_cast<uint32_t>(low - 2), waits >> 8};
}
// Returns a word that covers both `a` and `b`, which are as in ControlPage::client_waits.
constexpr uint64_t CombineWaits(uint64_t a, uint64_t b) {
  if (a == 0 || a == b) return b;
  return b == 0 ? a : kAnyProgress;
}

// When the client last published commands, while CompletionPage::wants_publish_times is set.
struct PublishTimes {
  static constexpr uint64_t kKept = 192;
  struct Time {
    std::atomic<uint64_t> tail;  // the new one
    std::atomic<uint64_t> ns;    // as NowNs counts
  };
  alignas(64) std::atomic<uint64_t> count;  // all of them; number n is at times[n % kKept], and complete
  std::array<Time, kKept> times;
};

// Positions count bytes since the device was opened. Position p is at byte p % kRingBytes of the ring.
struct ControlPage {
  alignas(64) std::atomic<uint64_t> tail;  // commands before this position are complete
  // Changes when the client begins to wait, so that the daemon reads the ring now.
  alignas(64) std::atomic<uint32_t> attention;
  // What the client waits for, as in client_waits. Written before `attention` changes; the daemon resets it
  // to 0.
  std::atomic<uint64_t> asks;
  // What must wake the client. The client sets it before it sleeps on CompletionPage::wake: 0 (nothing),
  // kAnyProgress, or one milestone (WaitsFor).
  alignas(64) std::atomic<uint64_t> client_waits;
  // Bytes of the device that the client intends to hold. The client reads its credit after it has stored
  // this.
  alignas(64) std::atomic<uint64_t> claimed;
  PublishTimes published;
};
static_assert(sizeof(ControlPage) <= kPageBytes);

struct QueueStatus {
  alignas(64) std::atomic<uint64_t> completed;  // sequence of the last finished command
  std::atomic<uint32_t> errors;                 // count of errors; incremented after the fields below are set
  uint32_t error_code;                          // absl::StatusCode
  uint64_t error_sequence;                      // the command that failed
  char message[488];  // NUL-terminated; does not change until ClearError names this count
};
static_assert(sizeof(QueueStatus) == 512);

// The session's memory on the device.
struct MemoryStatus {
  alignas(64) std::atomic<uint64_t> credit;  // bytes that the session may hold without a ReserveCommand,
                                             // rounded by RoundSize
  std::atomic<uint64_t> allocated;           // bytes that it holds, as charged by the daemon
  std::atomic<uint64_t> answered;            // sequence of the last answered ReserveCommand
  std::atomic<uint32_t> refused;             // 1 if it was refused; the MemoryShortage is below
  std::atomic<uint32_t> scope;
  std::atomic<uint64_t> limit, used;
};
static_assert(sizeof(MemoryStatus) == 64);

// Values of CompletionPage::closed.
enum ClosedWord : uint32_t {
  kSessionOpen = 0,
  kSessionClosed = 1,  // by the daemon, for a reason of its own
  kDaemonEnded = 2,  // a new session may reach the next daemon. A client that is older than this value takes
                     // it for kSessionClosed
};

struct CompletionPage {
  alignas(64) std::atomic<uint64_t> head;           // the ring before this position is free
  alignas(64) std::atomic<uint32_t> daemon_sleeps;  // 1: a client that publishes must signal the doorbell
  std::atomic<uint32_t> wants_publish_times;        // 1: the client notes in ControlPage when it publishes
  alignas(64) std::atomic<uint32_t> wake;           // futex; changes when a waiting client must check again
  std::atomic<uint32_t> closed;                     // a ClosedWord; unless it is 0, `reason` is set
  char reason[256];
  MemoryStatus memory;
  // A client that has read these looks afterwards whether the session is open: when it ends, the daemon
  // empties the page from kPageBytes on, which then reads as zeros.
  QueueStatus queues[wire::kMaxQueues];
  std::atomic<uint64_t> timestamps[wire::kMaxTimestamps];  // ns on the device's clock
};

static_assert(offsetof(CompletionPage, queues) <= kPageBytes);

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace xpud::transport
