// One end's frames: numbers those that are sent, and keeps them until the other end has said that they
// arrived, so that a new connection can go on where a lost one ended. Any thread.
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
  // `keeps`: whether there may be another connection.
  explicit Outbox(bool keeps) : keeps_(keeps) {}

  // The next number, for a frame that is to be sent now.
  void Number(Frame<Head>& frame) {
    MutexLock lock(mutex_);
    frame.head.set_number(++last_);
    if (!keeps_) return;
    kept_.push_back(frame);
    bytes_ += SliceReader(frame.payload).left();
  }
  // Those up to `number` have arrived. False: so many were never sent.
  bool Acknowledge(uint64_t number) {
    MutexLock lock(mutex_);
    if (number > last_) return false;
    for (; !kept_.empty() && kept_.front().head.number() <= number; kept_.pop_front())
      bytes_ -= SliceReader(kept_.front().payload).left();
    return true;
  }
  // So much is kept that nothing is to be added.
  bool IsFull() const {
    MutexLock lock(mutex_);
    return kept_.size() >= kMaxFrames || bytes_ >= kMaxBytes;
  }
  // To be sent again, in their order.
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
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of their payloads
};

// What arrives from the other end. The thread that reads.
class Inbox {
 public:
  // How many frames may arrive without a word; acknowledgements ride along with what is sent anyway.
  static constexpr uint64_t kMaxUnacknowledged = 64;

  // A frame of this number has arrived; 0: it is not counted. False: it is not the next one.
  bool Take(uint64_t number) {
    if (number == 0) return true;
    if (number != received_.load(std::memory_order_relaxed) + 1) return false;
    received_.store(number, std::memory_order_release);
    return true;
  }
  // Any thread.
  uint64_t received() const { return received_.load(std::memory_order_acquire); }
  // Whether it is time to say so. Any thread; the one that sends says what it has said.
  bool WantsAcknowledgement() const {
    return received() - acknowledged_.load(std::memory_order_relaxed) >= kMaxUnacknowledged;
  }
  void Acknowledged(uint64_t number) { acknowledged_.store(number, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> received_{0}, acknowledged_{0};
};

}  // namespace xpud::remote
