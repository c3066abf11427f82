// Events and fences of CUDA devices: one word each (event_words.h), which streams wait for and write, and the
// host reads and writes directly. The state outlives event and pool while a recorded command refers to it.
// Thread-safe.
#pragma once

#include <memory>

#include "drivers/cuda/event_words.h"
#include "drivers/frontend/event.h"

namespace xpud::drivers::cuda {

class EventState {
 public:
  static ze_result_t Create(std::shared_ptr<EventWords> words, bool timestamps,
                            std::shared_ptr<EventState>& state);
  // Releases streams that still wait: a stream that waits forever would block its device's context.
  ~EventState();
  EventState(const EventState&) = delete;
  EventState& operator=(const EventState&) = delete;

  bool timestamps() const { return timestamps_; }
  EventWord& word() const { return word_; }
  void Set(bool signalled) { word_.signal().store(signalled ? 1 : 0, std::memory_order_release); }
  // Returns SUCCESS, NOT_READY, or DEVICE_LOST if that is known. Does not ask the device.
  ze_result_t Query() const {
    if (word_.signal().load(std::memory_order_acquire) != 0) return ZE_RESULT_SUCCESS;
    return words_->lost() ? ZE_RESULT_ERROR_DEVICE_LOST : ZE_RESULT_NOT_READY;
  }
  ze_result_t Wait(uint64_t timeout_ns) const;
  ze_result_t ReadTimestamp(ze_kernel_timestamp_result_t& timestamp) const;

 private:
  EventState(std::shared_ptr<EventWords> words, EventWord& word, bool timestamps)
      : words_(std::move(words)), word_(word), timestamps_(timestamps) {}

  const std::shared_ptr<EventWords> words_;
  EventWord& word_;
  const bool timestamps_;
};

class CudaEvent final : public Event {
 public:
  using State = EventState;
  CudaEvent(const Driver* driver, std::shared_ptr<EventState> state)
      : Event(driver), state_(std::move(state)) {}

  EventState& state() const { return *state_; }
  const std::shared_ptr<EventState>& shared_state() const { return state_; }

  void HostSignal() override { state_->Set(true); }
  void HostReset() override { state_->Set(false); }
  ze_result_t QueryStatus() const override { return state_->Query(); }
  ze_result_t HostSynchronize(uint64_t timeout_ns) override { return state_->Wait(timeout_ns); }
  ze_result_t QueryTimestamp(ze_kernel_timestamp_result_t& timestamp) const override {
    return state_->ReadTimestamp(timestamp);
  }

 private:
  const std::shared_ptr<EventState> state_;
};

class CudaEventPool final : public EventPool {
 public:
  CudaEventPool(const Driver* driver, std::shared_ptr<EventWords> words, const ze_event_pool_desc_t& desc)
      : EventPool(driver),
        words_(std::move(words)),
        count_(desc.count),
        timestamps_(desc.flags & ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP) {}
  ze_result_t CreateEvent(const ze_event_desc_t& desc, std::unique_ptr<Event>& event) override;

 private:
  const std::shared_ptr<EventWords> words_;
  const uint32_t count_;
  const bool timestamps_;
};

// A fence, signalled by a queue after the lists of the same Execute call.
class CudaFence final : public Fence {
 public:
  CudaFence(const Driver* driver, std::shared_ptr<EventState> state)
      : Fence(driver), state_(std::move(state)) {}
  EventState& state() const { return *state_; }

  void Reset() override { state_->Set(false); }
  ze_result_t QueryStatus() const override { return state_->Query(); }
  ze_result_t HostSynchronize(uint64_t timeout_ns) override { return state_->Wait(timeout_ns); }

 private:
  const std::shared_ptr<EventState> state_;
};

}  // namespace xpud::drivers::cuda
