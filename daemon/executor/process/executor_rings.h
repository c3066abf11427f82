// The rings of a device's executor, at the daemon's end: what is sent to it, and what it reports. After the
// loss of an executor they are offline until the next one has the device: nothing is sent, but what the lost
// one reported can still be read. Owned by ExecutorPost. REQUIRES: the lane's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "daemon/executor/process/private_ring.h"
#include "daemon/tenant/time_grant.h"

namespace xpud::executor::process {

// How many rings each class has. A thread appends what is in its ring in order, so work waits for what lies
// before it there: not for that of another class, if there are enough.
struct RingPlan {
  uint32_t interactive = 1;  // 1 alone: it is everybody's
  uint32_t batch = 0, realtime = 0;

  // For a device that is worth this many appending threads for one class.
  static constexpr RingPlan For(uint32_t threads) {
    if (threads < 2) return {};
    return {.interactive = threads, .batch = threads / 2, .realtime = 1};
  }
  constexpr uint32_t total() const { return interactive + batch + realtime; }
  // The ring of the queue in a slot.
  constexpr size_t RingOf(PriorityClass of, uint32_t slot) const {
    if (of == PriorityClass::kBatch && batch != 0) return interactive + slot % batch;
    if (of == PriorityClass::kRealtime && realtime != 0) return interactive + batch + slot % realtime;
    return slot % interactive;
  }
};

class ExecutorRings {
 public:
  // Each executor has the rings of this plan.
  explicit ExecutorRings(const RingPlan& plan) : plan_(plan) {}
  ExecutorRings(const ExecutorRings&) = delete;
  ExecutorRings& operator=(const ExecutorRings&) = delete;

  // Uses the rings of the next executor. REQUIRES: they outlive Disconnect.
  void Connect(std::span<PrivateRing> rings);
  void TakeOffline() { online_ = false; }
  // Offline, with no rings to read.
  void Disconnect();
  bool online() const { return online_; }
  size_t count() const { return plan_.total(); }
  const RingPlan& plan() const { return plan_; }

  // REQUIRES for all that follows: Connect was called, and Disconnect was not; unless they say otherwise.
  // Sends complete messages. Returns false if the ring is full.
  bool Send(size_t ring, std::span<const std::byte> messages) { return rings_[ring].Send(messages); }
  // Ring positions: where the next message goes, and which one the executor has reached.
  uint64_t position(size_t ring) const { return rings_[ring].position(); }
  uint64_t taken(size_t ring) const { return rings_[ring].control().head.load(std::memory_order_acquire); }
  // Whether more messages may be sent: the executor has little enough to do. False if offline.
  bool HasRoom(size_t ring) const;
  // Call after the last Send of a series. Does nothing if offline.
  void Wake(size_t ring);

  // Why the executor cannot go on, if it has said so.
  std::optional<std::string> Fault() const;
  // The error that the executor reports of the queue in this slot. May be called at any time.
  bool HasReport(size_t ring, uint32_t slot) const;
  absl::Status TakeReport(size_t ring, uint32_t slot);
  void DropReport(size_t ring, uint32_t slot);

  // As executor::Device. May be called at any time.
  uint32_t Trace(bool on);
  bool Traced(uint32_t ticket) const { return !online_ || times().Reached(ticket); }
  uint64_t replayed_launches() const;
  // Whether this executor says when work ran.
  bool tracing() const { return traces_ && online_ && times().active(); }
  TimesExchange& times() const { return rings_.front().pages().times; }

 private:
  QueueReport& Report(size_t ring, uint32_t slot) const { return rings_[ring].pages().reports[slot]; }

  const RingPlan plan_;
  std::span<PrivateRing> rings_;
  bool online_ = false;
  bool traces_ = false;
};

}  // namespace xpud::executor::process
