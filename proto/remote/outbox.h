// Outbox numbers the frames that one end sends and keeps them until the other end acknowledges them, so that
// a new connection can continue after a lost one. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <vector>

#include "proto/base/mutex.h"
#include "proto/remote/frame.h"

namespace xpud::remote {

template <typename Head>
class Outbox {
 public:
  // `keeps`: whether frames are kept, for a later connection.
  explicit Outbox(bool keeps) : keeps_(keeps) {}

  // Gives the next number to a frame that is about to be sent.
  void Number(Frame<Head>& frame) {
    MutexLock lock(mutex_);
    frame.head.set_number(++last_);
    if (!keeps_) return;
    kept_.push_back(frame);
    bytes_ += SliceReader(frame.payload).left();
  }
  // Drops the frames up to `number`, which have arrived. Returns false if that number was never sent.
  bool Acknowledge(uint64_t number) {
    MutexLock lock(mutex_);
    if (number > last_) return false;
    for (; !kept_.empty() && kept_.front().head.number() <= number; kept_.pop_front())
      bytes_ -= SliceReader(kept_.front().payload).left();
    return true;
  }
  // Whether so many bytes or frames are kept that nothing more may be sent.
  bool IsFull() const {
    MutexLock lock(mutex_);
    return kept_.size() >= kMaxFrames || bytes_ >= kMaxBytes;
  }
  // Returns the unacknowledged frames, in order, to be sent again.
  std::vector<Frame<Head>> Kept() const {
    MutexLock lock(mutex_);
    return {kept_.begin(), kept_.end()};
  }

 private:
  static constexpr size_t kMaxFrames = 2048, kMaxBytes = 64 << 20;

  const bool keeps_;
  mutable Mutex mutex_;
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Frame<Head>> kept_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // total size of payloads
};

// Counts the frames that arrive. REQUIRES: the reading thread, unless a function says otherwise.
class Inbox {
 public:
  // An acknowledgement of its own is sent after this many frames; mostly they ride along with other frames.
  static constexpr uint64_t kMaxUnacknowledged = 64;

  // Records a frame with this number; 0: not numbered. Returns false if it is not the next number.
  bool Take(uint64_t number) {
    if (number == 0) return true;
    if (number != received_.load(std::memory_order_relaxed) + 1) return false;
    received_.store(number, std::memory_order_release);
    return true;
  }
  // Thread-safe.
  uint64_t received() const { return received_.load(std::memory_order_acquire); }
  // Whether an acknowledgement is due. Thread-safe; the sending thread keeps `acknowledged`.
  bool WantsAcknowledgement() const {
    return received() - acknowledged_.load(std::memory_order_relaxed) >= kMaxUnacknowledged;
  }
  void Acknowledged(uint64_t number) { acknowledged_.store(number, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> received_{0}, acknowledged_{0};
};

}  // namespace xpud::remote
