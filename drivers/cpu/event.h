// Events of the CPU device: a word that waiters sleep on, and two timestamps if the pool has them. The state
// outlives event and pool while a queued command refers to it. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "drivers/frontend/event.h"

namespace xpud::drivers::cpu {

class EventState {
 public:
  explicit EventState(bool timestamps) : timestamps_(timestamps) {}

  bool timestamps() const { return timestamps_; }
  bool signalled() const { return signalled_.load(std::memory_order_acquire) != 0; }
  void Signal();
  // Stores the times of the work. REQUIRES: an event with timestamps.
  void SignalWithTimes(uint64_t start_ns, uint64_t end_ns);
  void Reset() { signalled_.store(0, std::memory_order_release); }
  // Returns false if the time ran out, or if `*stop` (may be null) was set.
  bool Wait(uint64_t deadline_ns, const std::atomic<bool>* stop) const;
  ze_result_t ReadTimestamp(ze_kernel_timestamp_result_t& timestamp) const;

 private:
  const bool timestamps_;
  mutable std::atomic<uint32_t> waiters_{0};
  std::atomic<uint32_t> signalled_{0};
  std::atomic<uint64_t> start_ns_{0};
  std::atomic<uint64_t> end_ns_{0};
};

class CpuEvent final : public Event {
 public:
  using State = EventState;
  CpuEvent(const Driver* driver, bool timestamps)
      : Event(driver), state_(std::make_shared<EventState>(timestamps)) {}

  EventState& state() const { return *state_; }
  const std::shared_ptr<EventState>& shared_state() const { return state_; }

  void HostSignal() override { state_->Signal(); }
  void HostReset() override { state_->Reset(); }
  ze_result_t QueryStatus() const override {
    return state_->signalled() ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
  }
  ze_result_t HostSynchronize(uint64_t timeout_ns) override;
  ze_result_t QueryTimestamp(ze_kernel_timestamp_result_t& timestamp) const override {
    return state_->ReadTimestamp(timestamp);
  }

 private:
  const std::shared_ptr<EventState> state_;
};

class CpuEventPool final : public EventPool {
 public:
  CpuEventPool(const Driver* driver, const ze_event_pool_desc_t& desc)
      : EventPool(driver),
        count_(desc.count),
        timestamps_(desc.flags & ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP) {}
  ze_result_t CreateEvent(const ze_event_desc_t& desc, std::unique_ptr<Event>& event) override;

 private:
  const uint32_t count_;
  const bool timestamps_;
};

// A fence, signalled by a queue after the lists of the same Execute call.
class CpuFence final : public Fence {
 public:
  CpuFence(const Driver* driver, bool signalled)
      : Fence(driver), state_(std::make_shared<EventState>(false)) {
    if (signalled) state_->Signal();
  }
  const std::shared_ptr<EventState>& shared_state() const { return state_; }

  void Reset() override { state_->Reset(); }
  ze_result_t QueryStatus() const override {
    return state_->signalled() ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
  }
  ze_result_t HostSynchronize(uint64_t timeout_ns) override;

 private:
  const std::shared_ptr<EventState> state_;
};

}  // namespace xpud::drivers::cpu
